"""What an attacker with the application's database role tries, as plain SQL."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, transaction

from db.triggers import trigger_tables


@dataclass(frozen=True)
class Forgery:
    """One statement, and the trigger that refuses it; without that trigger it succeeds."""

    title: str
    trigger: str
    sql: str
    values: tuple[Any, ...] = field(default=())

    def execute(self) -> int:
        """Execute the statement and return how many rows it wrote."""
        values = [value.hex if isinstance(value, UUID) else value for value in self.values]
        if connection.vendor == "postgresql":
            values = list(self.values)
        with connection.cursor() as cursor:
            cursor.execute(self.sql, values)
            return int(cursor.rowcount)


def assert_refused(forgeries: Iterable[Forgery]) -> None:
    """Check each forgery: it succeeds without its trigger, and is refused with it."""
    tables = trigger_tables(connection)
    wrong = []
    for forgery in forgeries:
        with transaction.atomic():
            on = f" ON {tables[forgery.trigger]}" if connection.vendor == "postgresql" else ""
            with connection.cursor() as cursor:
                cursor.execute(f"DROP TRIGGER {forgery.trigger}{on}")
            if forgery.execute() < 1:
                wrong.append(f"{forgery.title}: writes nothing, also without the trigger")
            transaction.set_rollback(True)
        try:
            with transaction.atomic():
                forgery.execute()
        except DatabaseError as refusal:
            if forgery.trigger not in str(refusal):
                wrong.append(f"{forgery.title}: refused by {refusal}")
        else:
            wrong.append(f"{forgery.title}: is not refused")
    if wrong:
        pytest.fail("\n".join(wrong))


def copy_row(table: str, identity: Any, **values: str) -> str:
    """Return an INSERT of the row of `identity` once more, with other SQL values."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} LIMIT 0")
        columns = [column[0] for column in cursor.description]
    written = ", ".join(values.get(column, column) for column in columns)
    key = identity if isinstance(identity, int) else f"'{identity.hex}'"
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {written} FROM {table} WHERE id = {key}"
    )
