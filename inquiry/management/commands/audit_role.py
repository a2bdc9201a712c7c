"""manage.py audit_role: lets a role of PostgreSQL answer an audit without reading what agents sent."""

import re
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction

from inquiry import auditing


class Command(BaseCommand):
    help = (
        "Print what gives a role of PostgreSQL the right to read everything but payloads; with --apply say it, as the"
        " owner of the tables. Run it again after every upgrade."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", help="a role that exists: CREATE ROLE auditor LOGIN PASSWORD …")
        parser.add_argument("--apply", action="store_true")

    def handle(self, *_args: Any, **options: Any) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", options["role"]):
            raise CommandError(
                "The name of a role here is lower-case letters, digits and underscores."
            )
        if connection.vendor != "postgresql":
            raise CommandError(
                "SQLite has no roles: whoever can read the file reads all of it. Use PostgreSQL."
            )
        said = auditing.statements(connection.ops.quote_name, options["role"])
        if not options["apply"]:
            self.stdout.write("".join(f"{statement};\n" for statement in said))
            return
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [options["role"]])
            if cursor.fetchone() is None:
                raise CommandError(
                    f"There is no role {options['role']!r}; make it first, with a password of its own."
                )
            for statement in said:
                cursor.execute(statement)
        self.stdout.write(
            f"{options['role']} may read {len(auditing.tables())} tables, and no payload."
        )
