"""manage.py rebuild_counts: count the effects of every hour and day again."""

from typing import Any

from django.core.management.base import BaseCommand

from monitoring import effect_hours


class Command(BaseCommand):
    """Delete the counts by hour and by day and count all effects again, then exit.

    Needed only after rows of effects were restored or removed by hand.
    """

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = "Count the effects of every hour and day again, for pages with figures."

    def handle(self, *_args: Any, **_options: Any) -> None:
        position = effect_hours.rebuild_effect_hours()
        self.stdout.write(f"All effects are counted up to journal position {position}.")
