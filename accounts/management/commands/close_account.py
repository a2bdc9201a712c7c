"""`manage.py close_account NAME`: close the account of a person who leaves."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from accounts import people


class Command(BaseCommand):
    """Close an account, and end its sign-ins."""

    help = (
        "Close an account: the person can no longer sign in or decide, and their approvals do not"
        " count any more. Roles stay. The journal records it in each project of the person."
    )
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", metavar="NAME", help="the name that the person signs in by")

    def handle(self, *args: Any, **options: Any) -> str:
        username = options["username"]
        try:
            with transaction.atomic(durable=True):
                ended = people.close_account(username)
        except ValueError as error:
            raise CommandError(str(error)) from error
        return f"The account of {username} is closed. Sign-ins that ended: {ended}."
