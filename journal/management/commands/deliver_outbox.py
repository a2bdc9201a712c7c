"""`manage.py deliver_outbox`: what the Celery task does, from one process without a broker."""

from typing import Any

from django.core.management.base import BaseCommand

from journal.tasks import deliver_outbox


class Command(BaseCommand):
    help = "Send the notices that are due, at least once each."
    requires_system_checks: list[str] = []  # they are of the code, and take half of a start

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Print how many were sent."""
        self.stdout.write(f"{deliver_outbox()} sent")
