"""manage.py describe_search: print docs/search.md from the field registry."""

from typing import Any

from django.core.management.base import BaseCommand

from inquiry.query import reference


class Command(BaseCommand):
    help = "Print the reference of the query language (docs/search.md) from the field registry."

    def handle(self, **_options: Any) -> None:
        self.stdout.write(reference.page(), ending="")
