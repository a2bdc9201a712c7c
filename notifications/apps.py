"""Notification channels and delivery."""

from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    name = "notifications"
    label = "notifications"

    def ready(self) -> None:
        """Subscribe notifications to the outbox."""
        from notifications import notifications

        notifications.register_notification_senders()
