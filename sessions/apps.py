"""Projects, people, agents and their sessions. The label keeps clear of Django's own `sessions` (login) app."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """The room of who works and on what."""

    name = "sessions"
    label = "agent_sessions"
    default_auto_field = "django.db.models.BigAutoField"
