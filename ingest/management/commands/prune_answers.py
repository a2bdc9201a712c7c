"""`manage.py prune_answers`: what the Celery task does, from one process without a broker."""

from typing import Any

from django.core.management.base import BaseCommand

from ingest import answers
from journal import beating
from journal.clock import now_us
from sessions import artifacts, beats


class Command(BaseCommand):
    help = (
        "Delete stored answers to repeated commands and counted beats that are older than seven days, and what uploads"
        " of artifacts that broke off left on the disk more than a day ago."
    )
    requires_system_checks: list[str] = []  # they are of the code, and take half of a start

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Print how many were deleted."""
        with beating.watched("pruning"):
            counts = answers.prune(), artifacts.remove_abandoned(now_us()), beats.prune()
        self.stdout.write("{} answers, {} broken uploads and {} minutes of beats deleted".format(*counts))
