"""manage.py run_exports: write waiting exports, for installations without a job worker."""

from typing import Any

from django.core.management.base import BaseCommand

from investigation.exports import exports


class Command(BaseCommand):
    """Write all waiting exports, then exit; run it every minute, or use the job worker."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = "Write waiting exports, restart interrupted ones, remove files older than a day."

    def handle(self, *_args: Any, **_options: Any) -> None:
        self.stdout.write(f"{exports.run_exports()} finished.")
