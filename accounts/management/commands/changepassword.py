"""`manage.py changepassword NAME`: set the password of an account, and record it."""

import getpass
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from accounts import people


class Command(BaseCommand):
    """Replaces Django's command of this name, which records nothing."""

    help = (
        "Set the password of an account. You type it twice. The person must replace it after"
        " signing in. The journal records it in each project of the person."
    )
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", metavar="NAME", help="the name that the person signs in by")

    def handle(self, *args: Any, **options: Any) -> str:
        username = options["username"]
        password = self._read_password(username)
        try:
            people.set_password_on_server(username, password)
        except ValueError as error:
            raise CommandError(str(error)) from error
        return (
            f"{username} has another password, and must replace it after signing in."
            " Sign-ins with the old one have ended."
        )

    def _read_password(self, username: str) -> str:
        """Return the password that the operator types twice. Raises CommandError."""
        user = User.objects.filter(username=username).first()
        if user is None:
            raise CommandError(f"There is no person {username!r}.")
        password = getpass.getpass("Password: ")
        if password != getpass.getpass("Password (again): "):
            raise CommandError("The passwords differ. Nothing was changed. Run the command again.")
        try:
            validate_password(password, user)
        except ValidationError as error:
            raise CommandError(
                " ".join((*error.messages, "Nothing was changed. Run the command again."))
            ) from error
        return password
