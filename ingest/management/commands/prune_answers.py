"""`manage.py prune_answers`: the Celery task as a command, without a broker."""

from typing import Any

from django.core.management.base import BaseCommand

from ingest import answers
from journal import beating
from journal.clock import now_us
from sessions import artifacts, beats


class Command(BaseCommand):
    help = (
        "Delete stored responses and counted heartbeats older than seven days, and files of"
        " artifact uploads that"
        " were aborted more than a day ago."
    )
    # System checks concern the code and take half of the start-up time.
    requires_system_checks: list[str] = []

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Delete and print the counts."""
        with beating.watched("pruning"):
            counts = answers.prune(), artifacts.remove_abandoned(now_us()), beats.prune()
        self.stdout.write(
            "{} responses, {} aborted uploads and {} minutes of heartbeats deleted".format(*counts)
        )
