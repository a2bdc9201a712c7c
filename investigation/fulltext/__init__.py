"""Full-text search of effects by tool, target, arguments and results, equal on both databases."""
