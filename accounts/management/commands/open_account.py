"""`manage.py open_account NAME`: open an account that was closed."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from accounts import people


class Command(BaseCommand):
    """Open a closed account."""

    help = (
        "Open an account that close_account closed: the person signs in with the same password, and"
        " has the same roles. The journal records it in each project of the person."
    )
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", metavar="NAME", help="the name that the person signs in by")

    def handle(self, *args: Any, **options: Any) -> str:
        username = options["username"]
        try:
            with transaction.atomic(durable=True):
                people.open_account(username)
        except ValueError as error:
            raise CommandError(str(error)) from error
        return f"The account of {username} is open."
