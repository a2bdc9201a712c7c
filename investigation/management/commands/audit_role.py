"""manage.py audit_role: grant a PostgreSQL role read access without payloads."""

import re
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction

from investigation.query import auditor_columns


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Print the SQL that lets a PostgreSQL role read everything except payloads. With --apply,"
        " run it as the owner of the tables. Run it again after every upgrade."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", help="an existing role: CREATE ROLE auditor LOGIN PASSWORD …")
        parser.add_argument("--apply", action="store_true")

    def handle(self, *_args: Any, **options: Any) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", options["role"]):
            raise CommandError("Invalid role name. Use lower-case letters, digits and underscores.")
        if connection.vendor != "postgresql":
            raise CommandError(
                "SQLite has no roles: every reader of the file reads all of it. Use PostgreSQL."
            )
        statements = auditor_columns.grant_statements(connection.ops.quote_name, options["role"])
        if not options["apply"]:
            self.stdout.write("".join(f"{statement};\n" for statement in statements))
            return
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [options["role"]])
            if cursor.fetchone() is None:
                raise CommandError(
                    f"Unknown role {options['role']!r}. Create it first, with its own password."
                )
            for statement in statements:
                cursor.execute(statement)
        self.stdout.write(
            f"{options['role']} can read {len(auditor_columns.readable_columns())} tables, without "
            "payloads."
        )
