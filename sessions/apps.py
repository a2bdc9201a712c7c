"""Django app of projects, people, agents and sessions.

Its label differs from Django's own `sessions` app.
"""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """App config that registers the triggers of leases, archives and passwords."""

    name = "sessions"
    label = "agent_sessions"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the triggers with the journal's installer, which runs after migrations."""
        from journal import triggers
        from sessions import laws, laws_of_archives, people, sign_ins  # noqa: F401 - the last listens for sign-ins

        triggers.guard(laws.LAW)
        triggers.guard(laws_of_archives.LAW)
        triggers.guard(people.LAW)
