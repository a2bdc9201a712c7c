"""Views of the approval pages: they read forms, call the app and render templates."""
