"""Wiring only: settings, doors, server and supervisor. Nothing imports this package."""
