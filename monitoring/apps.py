"""Stuck sessions, job heartbeats and health."""

from django.apps import AppConfig


class MonitoringConfig(AppConfig):
    name = "monitoring"
    label = "monitoring"

    def ready(self) -> None:
        """Register what the page header shows, where heartbeats are stored, stuck notifications,
        and the guards of limits."""
        from accounts import header_counts
        from db import jobs, triggers
        from journal import outbox
        from monitoring import job_heartbeats
        from monitoring.stuck.limit_guards import LIMIT_GUARDS
        from notifications import message_text

        triggers.register_triggers(LIMIT_GUARDS)
        header_counts.register_status_columns(
            stuck="monitoring.stuck_counts.count_raised_episodes",
            job_texts="monitoring.job_heartbeats.heartbeats_column",
        )
        jobs.register_heartbeat_writer(
            job_heartbeats.record_heartbeat, job_heartbeats.record_run_end
        )
        texts = "monitoring.stuck.stuck_notifications"
        outbox.register_sender("stuck", f"{texts}.notify_episode")
        message_text.register_text_builder("session.stuck", f"{texts}.build_raised_text")
        message_text.register_text_builder("session.recovered", f"{texts}.build_cleared_text")
