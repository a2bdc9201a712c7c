"""The measurements: `python -m evaluation.bench`. docs/explanation/performance.md says what they mean and what
came out."""
