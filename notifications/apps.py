"""Notification channels and delivery."""

from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    name = "notifications"
    label = "notifications"

    def ready(self) -> None:
        """Subscribe notifications to the outbox, and register the guards of channels."""
        from db import triggers
        from notifications import channel_guards, notifications

        triggers.register_triggers(channel_guards.CHANNEL_GUARDS)
        notifications.register_notification_senders()
