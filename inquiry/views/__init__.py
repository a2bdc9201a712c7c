"""The reading pages. Views are thin: they read the query string, ask the room's verbs, and hand rows to a template."""
