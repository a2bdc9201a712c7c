"""Django app configuration of approvals."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """Registers triggers, notifications and the project status of page headers."""

    name = "approvals"
    label = "approvals"

    def ready(self) -> None:
        """Register with the trigger installer, the page header and the outbox."""
        from approvals import frame, notices
        from approvals.laws import LAW
        from journal import triggers
        from sessions import standing

        triggers.guard(LAW)
        standing.tell(waits=frame.waits, mode=frame.mode)
        notices.register()
