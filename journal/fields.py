"""Columns that the two databases spell differently."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func
from django.db.models.sql.compiler import SQLCompiler


class CurrentTransactionId(Func):
    """The writing transaction's number on PostgreSQL; NULL on SQLite, whose single writer needs none."""

    template = "pg_current_xact_id()"
    output_field = models.BigIntegerField()

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        """SQLite commits one writer at a time, so `position` alone is commit order there."""
        return "NULL", ()


class TransactionIdField(models.BigIntegerField):  # type: ignore[type-arg]  # its set and get types cannot be named
    """`xid8` on PostgreSQL (what sealing and as-of compare with the snapshot's horizon), a null integer on SQLite."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """The column type per vendor."""
        return "xid8" if connection.vendor == "postgresql" else super().db_type(connection)

    def from_db_value(self, value: Any, _expression: Any, _connection: BaseDatabaseWrapper) -> int | None:
        """Xid8 arrives as text from the driver; callers always see an integer or None."""
        return None if value is None else int(value)
