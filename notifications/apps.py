"""Notification channels and delivery."""

from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    name = "notifications"
    label = "notifications"

    def ready(self) -> None:
        """Subscribe notifications to the outbox, and register the guards of channels."""
        from db import triggers
        from journal import outbox
        from notifications import channel_guards, message_text

        triggers.register_triggers(channel_guards.CHANNEL_GUARDS)
        for topic, sender in (
            ("gate.requested", "notify_requested"),
            ("gate.resolved", "notify_resolved"),
            ("gate.addressed", "notify_addressed"),
            ("integrity", "notify_violation"),
        ):
            outbox.register_sender(topic, f"notifications.notifications.{sender}")
        message_text.register_text_builder(
            "integrity", "notifications.violation_text.build_violation_notification"
        )
