"""manage.py watch_questions: evaluate alerts, for installations without a job worker."""

from typing import Any

from django.core.management.base import BaseCommand

from inquiry import alerting


class Command(BaseCommand):
    """Evaluate once and exit; run it every minute, or use the job worker."""

    help = "Check every saved query with alerts on, and send notifications of new matches."
    requires_system_checks: list[str] = []  # checks of the code take half of the start-up time

    def handle(self, *_args: Any, **_options: Any) -> None:
        done = alerting.run()
        self.stdout.write(f"{done.looks} checked, {done.told} with new matches.")
