"""Stuck sessions, job heartbeats and health."""

from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    name = "monitoring"
    label = "monitoring"

    def ready(self) -> None:
        """Register what the page header shows, where heartbeats are stored, stuck notifications,
        and the guards of limits."""
        from db import triggers
        from monitoring import stuck_counts
        from monitoring.stuck.limit_guards import LIMIT_GUARDS

        triggers.register_triggers(LIMIT_GUARDS)

        stuck_counts.register_stuck()
