"""Agent sessions. The label differs from Django's own `sessions` (login) app."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions"
    label = "agent_sessions"

    def ready(self) -> None:
        """Register the triggers of leases."""
        from db import triggers
        from sessions import triggers as sessions_triggers

        triggers.register_triggers(sessions_triggers.LEASE_TRIGGERS)
