"""`manage.py send_notices`: what the Celery task does, from one process without a broker."""

from typing import Any

from django.core.management.base import BaseCommand

from approvals.tasks import send_notices


class Command(BaseCommand):
    help = "Tell people and programs of gates and breaches, at least once each."
    requires_system_checks: list[str] = []  # they are of the code, and take half of a start

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Print how many notices went out."""
        self.stdout.write(f"{send_notices()} sent")
