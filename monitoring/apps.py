"""Stuck sessions, job heartbeats and health."""

from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    name = "monitoring"
    label = "monitoring"

    def ready(self) -> None:
        """Register what the page header shows, where heartbeats are stored, and stuck
        notifications."""
        from monitoring import stuck_counts

        stuck_counts.register_stuck()
