"""Projects, people, agents and their sessions. The label keeps clear of Django's own `sessions` (login) app."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """The room of who works and on what. Adds the laws of leases to the triggers that every database must have."""

    name = "sessions"
    label = "agent_sessions"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Tell the journal's installer, which runs after every migration, of the laws of leases."""
        from journal import triggers
        from sessions import laws, laws_of_archives, people, sign_ins  # noqa: F401 - the last listens for sign-ins

        triggers.guard(laws.LAW)
        triggers.guard(laws_of_archives.LAW)
        triggers.guard(people.LAW)
