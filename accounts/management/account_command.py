"""The base of `manage.py close_account` and `open_account`."""

from abc import abstractmethod
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction


class AccountCommand(BaseCommand):
    """Changes the account of one person, in one transaction."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", metavar="NAME", help="the name that the person signs in by")

    def handle(self, *args: Any, **options: Any) -> str:
        try:
            with transaction.atomic(durable=True):
                return self.change_account(options["username"])
        except ValueError as error:
            raise CommandError(str(error)) from error

    @abstractmethod
    def change_account(self, username: str) -> str:
        """Change the account; return what the command prints. Raises ChangeRefused."""
