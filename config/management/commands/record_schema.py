"""`manage.py record_schema`: record the schema that the migrations create."""

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from db import schema_inventory


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Migrates an empty database and records its tables, constraints and indexes in "
        "db/expected/. For developers: `make schema` does it on SQLite and on PostgreSQL."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        if connection.introspection.table_names():
            raise CommandError(
                "The database is not empty. Run `make schema`, which makes databases of its own."
            )
        call_command("migrate", interactive=False, verbosity=0)
        self.stdout.write(str(schema_inventory.write_expected_inventory(connection)))
