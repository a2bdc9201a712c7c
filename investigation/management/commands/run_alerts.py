"""manage.py run_alerts: evaluate alerts, for installations without a job worker."""

from typing import Any

from django.core.management.base import BaseCommand

from investigation.alerts import alert_runner


class Command(BaseCommand):
    """Evaluate once and exit; run it every minute, or use the job worker."""

    help = "Check every saved query with alerts on, and send notifications of new matches."
    requires_system_checks: list[str] = []  # checks of the code take half of the start-up time

    def handle(self, *_args: Any, **_options: Any) -> None:
        done = alert_runner.run_alerts()
        self.stdout.write(f"{done.checks} checked, {done.notified} with new matches.")
