"""The benchmark: `python -m evaluation.bench`.

docs/explanation/performance.md explains the figures and lists results.
"""
