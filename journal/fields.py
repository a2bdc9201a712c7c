"""Columns and conditions that the two databases spell differently."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func
from django.db.models.lookups import In
from django.db.models.sql.compiler import SQLCompiler

from journal import clock


class CurrentTransactionId(Func):
    """The writing transaction's number on PostgreSQL; NULL on SQLite, whose single writer needs none."""

    template = "pg_current_xact_id()"
    output_field = models.BigIntegerField()

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        """SQLite commits one writer at a time, so `position` alone is commit order there."""
        return "NULL", ()


class DatabaseNow(Func):
    """The database's clock, microseconds since the epoch, in the statement that decides (journal/clock.py)."""

    output_field = models.BigIntegerField()

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        """In milliseconds."""
        return clock.SQL["sqlite"], ()

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        """When the statement arrived."""
        return clock.SQL["postgresql"], ()


class TransactionIdField(models.BigIntegerField):  # type: ignore[type-arg]  # its set and get types cannot be named
    """`xid8` on PostgreSQL (what sealing and as-of compare with the snapshot's horizon), a null integer on SQLite."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """The column type per vendor."""
        return "xid8" if connection.vendor == "postgresql" else super().db_type(connection)

    def from_db_value(
        self, value: Any, _expression: Any, _connection: BaseDatabaseWrapper
    ) -> int | None:
        """Xid8 arrives as text from the driver; callers always see an integer or None."""
        return None if value is None else int(value)


@models.Field.register_lookup
class OneOf(In):
    """`column__one_of=[…]`: what `__in` says of a column of text, for the conditions of constraints.

    SQLite makes a small table of an IN list anew for every row that it checks, which was half of an effect's INSERT; to
    compare with one value after the other costs a twentieth of that. PostgreSQL reads a table's conditions again for
    every statement that writes it, and an IN list is several times as long as an array.
    """

    lookup_name = "one_of"

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """The same as comparisons."""
        column, column_parameters = self.process_lhs(compiler, connection)
        _list, values = self.process_rhs(compiler, connection)
        text = " OR ".join([f"{column} = %s"] * len(values))
        return f"({text})", tuple(part for value in values for part in (*column_parameters, value))

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """The same as one array."""
        column, column_parameters = self.process_lhs(compiler, connection)
        _list, values = self.process_rhs(compiler, connection)
        if len(values) == 1:
            return f"{column} = %s", (*column_parameters, *values)
        quoted = ",".join(
            '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values
        )
        return f"{column} = ANY (%s::text[])", (*column_parameters, f"{{{quoted}}}")
