"""App configuration of inquiry: pages, search and stuck detection."""

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate


class InquiryConfig(AppConfig):
    """Register stuck detection, alerts, the full-text trigger and SQLite planner statistics."""

    name = "inquiry"
    label = "inquiry"

    def ready(self) -> None:
        """Connect the handlers; planner statistics follow the ledger's migrations."""
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
