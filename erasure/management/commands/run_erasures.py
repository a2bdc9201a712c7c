"""manage.py run_erasures: count previews and carry out confirmed erasures."""

from typing import Any

from django.core.management.base import BaseCommand

from erasure import erasure_runner


class Command(BaseCommand):
    """Do all that is due, then exit; run it every minute, or use the job worker."""

    help = "Count the previews of erasure requests, and erase what a second person confirmed."

    def handle(self, *_args: Any, **_options: Any) -> None:
        moved = erasure_runner.run_erasures()
        while erasure_runner.run_erasures():
            moved += 1
        self.stdout.write(f"{moved} requests moved on.")
