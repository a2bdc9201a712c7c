"""Columns and conditions that differ between the two databases."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func
from django.db.models.lookups import In
from django.db.models.sql.compiler import SQLCompiler

from db import clock


class CurrentTransactionId(Func):
    """The writing transaction's number on PostgreSQL, NULL on SQLite."""

    template = "pg_current_xact_id()"
    output_field = models.BigIntegerField()

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        """Return NULL: SQLite has one writer, so `position` is the commit order."""
        return "NULL", ()


class DatabaseNow(Func):
    """The database's clock, in microseconds since the epoch (db/clock.py)."""

    output_field = models.BigIntegerField()

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        """Return the clock, which has milliseconds."""
        return clock.NOW_SQL["sqlite"], ()

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        """Return the statement's start time."""
        return clock.NOW_SQL["postgresql"], ()


class RowNumberField(models.BigIntegerField):  # type: ignore[type-arg]
    """A number that a row gets from its writer; as a primary key SQLite's row id."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """Return the column type of the vendor: SQLite knows its row id only as `integer`."""
        return "integer" if connection.vendor == "sqlite" else super().db_type(connection)


class TransactionIdField(models.BigIntegerField):  # type: ignore[type-arg]
    """`xid8` on PostgreSQL for comparison with snapshots, integer on SQLite."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """Return the column type of the vendor."""
        return "xid8" if connection.vendor == "postgresql" else super().db_type(connection)

    def from_db_value(
        self, value: Any, _expression: Any, _connection: BaseDatabaseWrapper
    ) -> int | None:
        """Convert the driver's text to an integer or None."""
        return None if value is None else int(value)


@models.Field.register_lookup
class OneOf(In):
    """`column__one_of=[…]`: like `__in` on text columns, for CHECK constraints.

    SQLite builds a table from an IN list for every checked row, which took half of an effect's
    INSERT; single comparisons cost a twentieth of that. PostgreSQL parses a table's constraints for
    every writing statement, and an IN list is several times longer than an array.
    """

    lookup_name = "one_of"

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """Compile to single comparisons."""
        column, column_parameters = self.process_lhs(compiler, connection)
        _list, values = self.process_rhs(compiler, connection)
        text = " OR ".join([f"{column} = %s"] * len(values))
        return f"({text})", tuple(part for value in values for part in (*column_parameters, value))

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """Compile to one array comparison."""
        column, column_parameters = self.process_lhs(compiler, connection)
        _list, values = self.process_rhs(compiler, connection)
        if len(values) == 1:
            return f"{column} = %s", (*column_parameters, *values)
        quoted = ",".join(
            '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values
        )
        return f"{column} = ANY (%s::text[])", (*column_parameters, f"{{{quoted}}}")
