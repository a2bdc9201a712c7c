"""`manage.py setup`: prepare an installation to serve. Safe at every start."""

import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor

from accounts import people, projects
from config import checks, installation
from db import key_files
from db.postgres import grants
from proofs import signing_keys

ADMINISTRATOR = "admin"


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Migrate the database, create the project 'default' and an administrator if missing, "
        "and collect the static files. A second run changes nothing."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        for sentence in installation.find_installation_faults(must_exist=False):
            raise CommandError(sentence)
        # Also before `migrate` where no migration is due: triggers may name what another version's
        # tables lack.
        executor = MigrationExecutor(connection)
        if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
            _refuse_foreign_schema()
        call_command("migrate", interactive=False, verbosity=0)
        _refuse_foreign_schema()
        if settings.APPLICATION_ROLE:
            grants.grant_application_role(connection, settings.APPLICATION_ROLE)
        try:
            is_new = installation.record_installation()
        except ValueError as reason:
            raise CommandError(str(reason)) from reason
        if is_new:
            self.stdout.write(
                f"A new installation: {installation.describe_database_location()}, files in "
                f"{settings.VAR_DIR}"
            )
        self._make_seal_key()
        call_command("collectstatic", interactive=False, verbosity=0)
        self._make_administrator()

    def _make_seal_key(self) -> None:
        """Store the key of tree heads of a new installation; warn where it is missing."""
        try:
            if signing_keys.load_last_key() is not None:
                signing_keys.load_private_key()
                return
            private_key = signing_keys.load_configured_key() or signing_keys.build_private_key(
                key_files.store_key(
                    signing_keys.key_folder(),
                    signing_keys.KEY_NAME,
                    secrets.token_bytes(signing_keys.SEED_BYTES),
                )
            )
        except signing_keys.SealKeyError as reason:
            # Only the node of the job worker needs it.
            self.stderr.write(f"No tree heads are signed by this node. {reason}")
            return
        except ValueError as reason:
            raise CommandError(str(reason)) from reason
        signing_keys.store_first_key(private_key)

    def _make_administrator(self) -> None:
        """Print the new administrator's sign-in once; nothing when an account exists."""
        password = people.generate_password()
        with transaction.atomic(durable=True):
            project = projects.ensure_default_project()
            # Any account counts: a renamed administrator must not be created again with a new
            # password.
            if get_user_model().objects.exists():
                return
            people.create_administrator(ADMINISTRATOR, password, project)
        self.stdout.write(f"Sign in as {ADMINISTRATOR} with the password {password}")
        self.stdout.write(
            "This password is shown once. Change it under your name, Password, or with "
            "`manage.py changepassword`."
        )


def _refuse_foreign_schema() -> None:
    """Raise CommandError where the tables are not this version's.

    Rewritten migrations count as applied by their names.
    """
    for sentence in checks.find_foreign_schema(connection):
        raise CommandError(sentence)
