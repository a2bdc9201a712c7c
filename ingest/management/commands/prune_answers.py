"""`manage.py prune_answers`: what the Celery task does, from one process without a broker."""

from typing import Any

from django.core.management.base import BaseCommand

from ingest import answers


class Command(BaseCommand):
    help = "Delete stored answers to repeated commands that are older than seven days."

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Print how many were deleted."""
        self.stdout.write(f"{answers.prune()} deleted")
