"""Fold rows again from the journal, compare them with what is stored, and restore them."""
