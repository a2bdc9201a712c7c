"""Finding effects by the words of their tool, target, arguments and results: the same answers on both databases."""
