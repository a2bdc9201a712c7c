"""`manage.py deliver_outbox`: run the Celery task in one process without a broker."""

from typing import Any

from django.core.management.base import BaseCommand

from journal.tasks import deliver_outbox


class Command(BaseCommand):
    help = "Send the due rows of the outbox, at least once each."
    requires_system_checks: list[str] = []  # they check the code, and double the start-up time

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Print the number of sent rows."""
        self.stdout.write(f"{deliver_outbox()} sent")
