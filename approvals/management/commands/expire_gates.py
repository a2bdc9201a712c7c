"""`manage.py expire_gates`: record passed deadlines, without a job worker."""

from typing import Any

from django.core.management.base import BaseCommand

from approvals.tasks import expire_gates


class Command(BaseCommand):
    """Runs once; schedule it every few seconds, or run the job worker instead."""

    help = (
        "End requests past their deadline, approvals that expired unused, and expired exemptions."
    )
    requires_system_checks: list[str] = []  # the checks take half of the start-up time

    def handle(self, *_args: Any, **_options: Any) -> None:
        self.stdout.write(f"{expire_gates()} ended.")
