"""manage.py run_retention: count new retention sets, and remove what has expired."""

from typing import Any

from django.core.management.base import BaseCommand

from retention import expiry


class Command(BaseCommand):
    """Do all that is due, then exit; run it every hour, or use the job worker."""

    help = "Count what new retention sets would remove, and remove the texts that have expired."

    def handle(self, *_args: Any, **_options: Any) -> None:
        gone = expiry.run_retention()
        self.stdout.write(f"{gone} bodies expired.")
