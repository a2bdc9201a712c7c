"""manage.py describe_search: print docs/reference/search.md from the field registry."""

from typing import Any

from django.core.management.base import BaseCommand

from investigation.query import docs


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = "Print docs/reference/search.md, made from the field registry."

    def handle(self, **_options: Any) -> None:
        self.stdout.write(docs.render_search_docs(), ending="")
