"""The desk and its neighbours. Views are thin: they read a form, ask the room's verbs, and hand facts to a template."""
