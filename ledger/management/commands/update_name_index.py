"""manage.py update_name_index: read the names that plans used, for installations without a job
worker."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ledger.names import name_index
from ledger.names.used_names import load_names_position


class Command(BaseCommand):
    """Read the names of all new plans, then exit; run it every few seconds, or the job worker."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = "Update the index of names that plans used: hosts, addresses, accounts, clusters."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--again",
            action="store_true",
            help="rebuild the index from the beginning of the journal",
        )

    def handle(self, *_args: Any, again: bool = False, **_options: Any) -> None:
        if again:
            name_index.reset_name_index()
        plans = name_index.index_names()
        self.stdout.write(f"{plans} plans read, up to journal position {load_names_position()}.")
