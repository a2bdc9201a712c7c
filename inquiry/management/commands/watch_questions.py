"""manage.py watch_questions: asks saved queries whose alerts are on for new matches, where no job worker does."""

from typing import Any

from django.core.management.base import BaseCommand

from inquiry import alerting


class Command(BaseCommand):
    """Looks once and ends; run it every minute, or let the job worker do it."""

    help = "Look once at every saved query whose alerts are on, and let people hear of what matches anew."
    requires_system_checks: list[str] = []  # they are of the code, and take half of a start

    def handle(self, *_args: Any, **_options: Any) -> None:
        done = alerting.run()
        self.stdout.write(f"{done.looks} looked at, {done.told} told of something new.")
