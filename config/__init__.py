"""Settings, URLs, web server and supervisor. Nothing imports this package."""
