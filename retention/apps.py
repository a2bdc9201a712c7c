"""Retention: how long the texts of journal entries are kept."""

from django.apps import AppConfig


class RetentionConfig(AppConfig):
    name = "retention"
    label = "retention"

    def ready(self) -> None:
        """Register the guards of retention sets and of expired bodies."""
        from db import triggers
        from retention.retention_guards import RETENTION_GUARDS

        triggers.register_triggers(RETENTION_GUARDS)
