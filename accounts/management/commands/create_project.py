"""`manage.py create_project NAME --administrator USER`: create another project."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from accounts import people, projects


class Command(BaseCommand):
    """Create a project and its first administrator."""

    help = "Create a project with its first administrator. A new person's password is printed once."
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="1 to 64 characters")
        parser.add_argument(
            "--administrator", required=True, metavar="USER", help="an existing or a new person"
        )

    def handle(self, *args: Any, **options: Any) -> str:
        name, username = options["name"].strip(), options["administrator"]
        if not name or len(name) > 64 or not name.isprintable():
            raise CommandError("A project's name is 1 to 64 printable characters.")
        password = None if people.has_username(username) else people.generate_password()
        try:
            with transaction.atomic(durable=True):
                people.add_project_member(
                    projects.create_project(name),
                    username,
                    "administrator",
                    password,
                    must_replace=True,
                )
        except ValueError as error:
            raise CommandError(str(error)) from error
        if password is None:
            return f"Project {name} created; {username} administers it."
        return f"Project {name} created; sign in as {username} with the password {password}"
