"""`manage.py setup`: everything between an installed package and a served house. Safe to run at every start."""

from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor

from config import durability, installation, roles
from sessions import people, projects

ADMINISTRATOR = "admin"


class Command(BaseCommand):
    help = (
        "Migrates the database, makes the project 'default' and an administrator where there is none, "
        "and gathers the static files. A second run changes nothing."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        for sentence in installation.refusals(must_exist=False):
            raise CommandError(sentence)
        # Before a migration too where none is due: triggers may name what the tables of another version lack.
        executor = MigrationExecutor(connection)
        if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
            _refuse_foreign_schema()
        call_command("migrate", interactive=False, verbosity=0)
        _refuse_foreign_schema()
        if settings.APPLICATION_ROLE:
            roles.grant(connection, settings.APPLICATION_ROLE)
        try:
            is_new = installation.settle()
        except ValueError as reason:
            raise CommandError(str(reason)) from reason
        if is_new:
            self.stdout.write(f"A new installation: {installation.place()}, files in {settings.VAR_DIR}")
        call_command("collectstatic", interactive=False, verbosity=0)
        self._make_administrator()

    def _make_administrator(self) -> None:
        """Print the new administrator's sign-in, which nothing can show again; say nothing when there is one."""
        password = people.generated_password()
        with transaction.atomic(durable=True):
            project = projects.ensure_default()
            # Anybody at all: a renamed administrator must not come back under the old name with a new password.
            if get_user_model().objects.exists():
                return
            people.create_administrator(ADMINISTRATOR, password, project)
        self.stdout.write(f"Sign in as {ADMINISTRATOR} with the password {password}")
        self.stdout.write(
            "It is shown this once; change it under your name, Password, or with `manage.py changepassword`."
        )


def _refuse_foreign_schema() -> None:
    """Raise CommandError where rewritten migrations count as applied by their names, and the tables are others."""
    for sentence in durability.foreign_schema(connection):
        raise CommandError(sentence)
