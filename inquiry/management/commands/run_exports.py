"""manage.py run_exports: makes the exports that people wait for, for installations without a job worker."""

from typing import Any

from django.core.management.base import BaseCommand

from inquiry import exports


class Command(BaseCommand):
    """Runs until nothing is waiting; run it every minute, or let the job worker do it."""

    help = "Make the exports that are waiting, take up those that were broken off, remove files older than a day."

    def handle(self, *_args: Any, **_options: Any) -> None:
        self.stdout.write(f"{exports.run()} finished.")
