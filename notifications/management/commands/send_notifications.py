"""`manage.py send_notifications`: send due notifications, without a broker."""

from typing import Any

from django.core.management.base import BaseCommand

from notifications.tasks import send_notifications


class Command(BaseCommand):
    help = "Send due notifications of gates and violations, at least once each."
    requires_system_checks: list[str] = []  # the checks take half of the start-up time

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Print how many notifications were sent."""
        self.stdout.write(f"{send_notifications()} sent")
