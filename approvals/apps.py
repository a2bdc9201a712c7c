"""The room approvals: its name and label for Django."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """Adds the laws of gates and votes to the triggers that every database must have, and its notices to the outbox.

    The frame of every page says what waits and in which mode the project is.
    """

    name = "approvals"
    label = "approvals"

    def ready(self) -> None:
        """Tell the journal's installer, which runs after every migration, the outbox and the frame what it brings."""
        from approvals import frame, notices
        from approvals.laws import LAW
        from journal import triggers
        from sessions import standing

        triggers.guard(LAW)
        standing.tell(waits=frame.waits, mode=frame.mode)
        notices.register()
