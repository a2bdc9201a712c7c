"""Search, history, incidents and bundles."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class InvestigationConfig(AppConfig):
    name = "investigation"
    label = "investigation"

    def ready(self) -> None:
        """Register alert notifications and keep the search index in step with erased bodies."""
        from db import triggers
        from investigation.fulltext import field_index, store
        from journal import outbox
        from notifications import message_text

        texts = "investigation.alerts.alert_notifications"
        outbox.register_sender("alert", f"{texts}.notify_alert")
        message_text.register_text_builder("alert.raised", f"{texts}.build_new_matches_text")
        message_text.register_text_builder("alert.stopped", f"{texts}.build_stopped_alerts_text")
        triggers.register_triggers(store.SEARCH_TEXT_TRIGGERS)
        triggers.register_triggers(field_index.FIELD_VALUE_TRIGGERS)
        post_migrate.connect(
            store.rebuild_empty_index, sender=self, dispatch_uid="investigation.fulltext"
        )
