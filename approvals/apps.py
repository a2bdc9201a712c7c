"""The room approvals: its name and label for Django."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """Adds the laws of gates and votes to the triggers that every database must have, and its notices to the outbox."""

    name = "approvals"
    label = "approvals"

    def ready(self) -> None:
        """Tell the journal's installer, which runs after every migration, and the outbox what this room brings."""
        from approvals import notices
        from approvals.laws import LAW
        from journal import triggers

        triggers.guard(LAW)
        notices.register()
