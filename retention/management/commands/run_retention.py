"""manage.py run_retention: count new retention sets, and remove what has expired."""

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from erasure.recorded_holds import HoldNotRecorded
from retention import expiry
from retention.retention_sets import SetNotRecorded


class Command(BaseCommand):
    """Do all that is due, then exit; run it every hour, or use the job worker."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = "Count what new retention sets would remove, and remove the texts that have expired."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--seconds", type=float, metavar="S", help="end after the batch that takes longer"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        before = time.process_time()
        try:
            gone, batches = expiry.run_retention(options["seconds"])
        except (HoldNotRecorded, SetNotRecorded) as fault:
            raise CommandError(str(fault)) from fault
        used = time.process_time() - before
        self.stdout.write(f"{gone} bodies expired in {batches} batches, {used:.2f} s of CPU.")
