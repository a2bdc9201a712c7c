"""manage.py sweep: looks for what is stuck and records what changed, for installations without a job worker."""

from typing import Any

from django.core.management.base import BaseCommand

from inquiry.stuck import sweeper


class Command(BaseCommand):
    """Runs once and ends; run it every few seconds, or let the job worker do it."""

    help = "Evaluate the rules of stuck sessions once. What holds in two evaluations in a row is raised."
    requires_system_checks: list[str] = []  # they are of the code, and take half of a start

    def handle(self, *_args: Any, **_options: Any) -> None:
        done = sweeper.sweep()
        words = f"{done.stuck} stuck, {done.raised} raised, {done.cleared} cleared."
        self.stdout.write(
            f"{words} Alarms are held: Gatebook was away itself." if done.held else words
        )
