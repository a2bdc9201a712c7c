"""manage.py run_retention: count new retention sets, and remove what has expired."""

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from retention import expiry


class Command(BaseCommand):
    """Do all that is due, then exit; run it every hour, or use the job worker."""

    help = "Count what new retention sets would remove, and remove the texts that have expired."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--seconds", type=float, metavar="S", help="end after the batch that takes longer"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        before = time.process_time()
        gone, batches = expiry.run_retention(options["seconds"])
        used = time.process_time() - before
        self.stdout.write(f"{gone} bodies expired in {batches} batches, {used:.2f} s of CPU.")
