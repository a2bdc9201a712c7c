"""manage.py sweep_gates: writes down deadlines that have passed, for installations without a job worker."""

from typing import Any

from django.core.management.base import BaseCommand

from approvals.tasks import sweep_gates


class Command(BaseCommand):
    """Runs once and ends; run it every few seconds, or let the job worker do it."""

    help = "End gates whose time to decide is over, leave that was not used in time, and exemptions that ended."
    requires_system_checks: list[str] = []  # they are of the code, and take half of a start

    def handle(self, *_args: Any, **_options: Any) -> None:
        self.stdout.write(f"{sweep_gates()} ended.")
