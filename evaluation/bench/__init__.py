"""The measurements: `python -m evaluation.bench`. docs/performance.md says what they mean and what came out."""
