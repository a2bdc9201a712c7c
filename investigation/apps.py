"""Search, history, incidents and bundles."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class InvestigationConfig(AppConfig):
    name = "investigation"
    label = "investigation"

    def ready(self) -> None:
        """Register alert notifications and keep the search index in step with erased bodies."""
        from db import triggers
        from investigation.alerts import alert_notifications
        from investigation.fulltext import field_index, store

        alert_notifications.register_alert_notifications()
        triggers.register_triggers(store.SEARCH_TEXT_TRIGGERS)
        triggers.register_triggers(field_index.FIELD_VALUE_TRIGGERS)
        post_migrate.connect(
            store.rebuild_empty_index, sender=self, dispatch_uid="investigation.fulltext"
        )
