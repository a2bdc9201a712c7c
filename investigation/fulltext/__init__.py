"""Full-text search of effects, equal on both databases.

By the words of tool, target, arguments, results and the agent's reason.
"""
