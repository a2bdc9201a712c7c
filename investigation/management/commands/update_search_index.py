"""manage.py update_search_index: update the full-text index, for installations without a job
worker."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from investigation.fulltext import indexer


class Command(BaseCommand):
    """Index everything new, then exit; run it every few seconds, or use the job worker."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = "Update the full-text index with new and changed effects."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--again",
            action="store_true",
            help="rebuild the index from the beginning of the journal",
        )

    def handle(self, *_args: Any, again: bool = False, **_options: Any) -> None:
        if again:
            indexer.reset_index()
        done = indexer.update_index()
        self.stdout.write(
            f"{done.effects} effects indexed, up to journal position {done.position}."
        )
