"""Endpoints of the sealed log."""
