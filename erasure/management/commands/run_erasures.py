"""manage.py run_erasures: count previews and carry out confirmed erasures."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from erasure import erasure_runner
from erasure.erasure_requests import RequestNotRecorded
from erasure.recorded_holds import HoldNotRecorded


class Command(BaseCommand):
    """Do all that is due, then exit; run it every minute, or use the job worker."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = "Count the previews of erasure requests, and erase what a second person confirmed."

    def handle(self, *_args: Any, **_options: Any) -> None:
        moved = 0
        try:
            while more := erasure_runner.run_erasures():
                moved += more
        except (HoldNotRecorded, RequestNotRecorded) as fault:
            raise CommandError(str(fault)) from fault
        self.stdout.write(f"{moved} requests moved on.")
