"""`manage.py prune_idempotency_keys`: the Celery task as a command, without a broker."""

from typing import Any

from django.core.management.base import BaseCommand

from api import idempotency
from db import jobs
from db.clock import now_us
from sessions import artifacts, heartbeats


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
        with jobs.record_run("pruning"):
            counts = (
                idempotency.prune_responses(),
                artifacts.remove_abandoned_uploads(now_us()),
                heartbeats.prune_heartbeat_minutes(),
            )
        self.stdout.write(
            "{} responses, {} aborted uploads and {} minutes of heartbeats deleted".format(*counts)
        )
