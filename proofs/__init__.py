"""Proofs that the journal was not changed: seal, tree heads, tiles."""
