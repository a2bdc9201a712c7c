"""manage.py sweep_stuck: evaluate the stuck rules once, for installations without a job worker."""

from typing import Any

from django.core.management.base import BaseCommand

from monitoring.stuck import sweeper


class Command(BaseCommand):
    """Evaluate once and exit; run it every few seconds, or use the job worker."""

    help = "Evaluate the stuck rules once. A rule that is true twice in a row raises an alert."
    requires_system_checks: list[str] = []  # checks of the code take half of the start-up time

    def handle(self, *_args: Any, **_options: Any) -> None:
        done = sweeper.sweep_stuck()
        words = f"{done.stuck} stuck, {done.raised} raised, {done.cleared} cleared."
        self.stdout.write(
            f"{words} Nothing is raised yet: Gatebook was down." if done.is_paused else words
        )
