"""The room inquiry: what people read, and the watch over what is stuck."""

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate


class InquiryConfig(AppConfig):
    """Informs SQLite's planner whenever the tables it reads may have changed, and keeps words in step with bodies."""

    name = "inquiry"
    label = "inquiry"

    def ready(self) -> None:
        """Listen for the ledger, whose tables they are: Django tells nothing of rooms without tables of their own."""
        from inquiry import alert_notices, planner
        from inquiry.stuck import frame
        from inquiry.words import keeping
        from journal import triggers

        frame.tell()
        alert_notices.register()
        triggers.guard(keeping.LAW)
        post_migrate.connect(keeping.empty_after_flush, sender=self, dispatch_uid="inquiry.words")
        ledger = apps.get_app_config("ledger")
        post_migrate.connect(
            planner.inform_after_migrate, sender=ledger, dispatch_uid="inquiry.planner"
        )
