"""Print docs/search.md as the registry has it."""

from typing import Any

from django.core.management.base import BaseCommand

from inquiry.query import reference


class Command(BaseCommand):
    help = "Print the reference of the query language (docs/search.md) as the registry has it."

    def handle(self, **_options: Any) -> None:
        self.stdout.write(reference.page(), ending="")
