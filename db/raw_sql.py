"""Plain SQL on the thread's connection, for writers and frequent checks.

Django wraps every statement in a cursor and three wrappers, at a higher cost than most statements
here. Psycopg sends a type for every parameter (a number's by its size, none for None), so one text
would be prepared again for every mixture of them. Connections, transactions and error classes stay
Django's. Texts mark parameters with %s and contain no other per cent sign. Pass UUIDs by
`vendor_id`.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connection, connections


def fetch_rows(text: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run a statement and return all its rows."""
    database = connections[DEFAULT_DB_ALIAS]
    with database.wrap_database_errors:
        fetched: list[tuple[Any, ...]] = _run(database, text, parameters).fetchall()
    return fetched


def has_rows(table: str) -> bool:
    """Return False for an empty table. SQLite reads the table itself: an index may lack rows."""
    hint = "" if _is_postgresql() else " NOT INDEXED"
    return bool(fetch_rows(f"SELECT 1 FROM {table}{hint} LIMIT 1"))


def execute_write(text: str, parameters: Sequence[Any] = ()) -> int:
    """Run a writing statement and return the number of rows written."""
    database = connections[DEFAULT_DB_ALIAS]
    with database.wrap_database_errors:
        return int(_run(database, text, parameters).rowcount)


def execute_write_each(text: str, parameters: Iterable[Sequence[Any]]) -> int:
    """Run a statement for each of `parameters` on SQLite; return the row count."""
    database: Any = connections[DEFAULT_DB_ALIAS]
    database.validate_no_broken_transaction()
    with database.wrap_database_errors:
        return int(database.connection.executemany(_question_marks(text), parameters).rowcount)


def vendor_id(value: UUID) -> UUID | str:
    """Convert a UUID to an SQL parameter of the current vendor."""
    return value if _is_postgresql() else value.hex


def read_uuid(value: UUID | str) -> UUID:
    """Convert a UUID column as statements return it on either vendor."""
    return value if isinstance(value, UUID) else UUID(value)


def wanted_table(sort: str) -> str:
    """Return a FROM item: `wanted_table` with the column `key` of type `sort`.

    Its one parameter comes from `to_array_parameter`. Follow it with CROSS JOIN and a condition, so
    that SQLite looks up each key, whatever its planner estimates.
    """
    if _is_postgresql():
        return f"unnest(%s::{sort}[]) AS wanted(key)"
    return "(SELECT value AS key FROM json_each(%s)) AS wanted"


def to_array_parameter(values: Iterable[int | str]) -> str:
    """Convert numbers or words to an array parameter."""
    return f"{{{','.join(map(str, values))}}}" if _is_postgresql() else json.dumps(list(values))


def uuid_as_cast_text(value: UUID) -> str:
    """Format a UUID as `CAST(… AS text)` returns it, which is fast."""
    return str(value) if _is_postgresql() else value.hex


@cache
def _is_postgresql() -> bool:
    """Return the vendor, cached because Django's proxy is slow."""
    return connection.vendor == "postgresql"


def _run(database: Any, text: str, parameters: Sequence[Any]) -> Any:
    database.validate_no_broken_transaction()
    raw = database.connection
    if raw is None:
        database.ensure_connection()
        raw = database.connection
    if database.vendor != "postgresql":
        return raw.execute(_question_marks(text), parameters)
    cursor = getattr(raw, "plain_cursor", None)
    if cursor is None:
        raw.plain_cursor = cursor = _plain_cursor(raw)
    return cursor.execute(_numbered(text), parameters, prepare=True)


@lru_cache(maxsize=1024)
def _question_marks(text: str) -> str:
    return text.replace("%s", "?")


@lru_cache(maxsize=1024)
def _numbered(text: str) -> bytes:
    """Convert to PostgreSQL placeholders, cached."""
    first, *rest = text.split("%s")
    return "".join([first, *(f"${number}{part}" for number, part in enumerate(rest, 1))]).encode()


def _plain_cursor(raw: Any) -> Any:
    """Return a psycopg cursor that leaves types of numbers and UUIDs to the server."""
    from psycopg import RawCursor
    from psycopg.adapt import Dumper

    class Number(Dumper):
        """An integer of any size."""

        def dump(self, obj: int) -> bytes:
            return b"%d" % obj

    class Identity(Dumper):
        """A UUID."""

        def dump(self, obj: UUID) -> bytes:
            return obj.hex.encode()

    cursor = RawCursor(raw)
    cursor.adapters.register_dumper(int, Number)
    cursor.adapters.register_dumper(UUID, Identity)
    return cursor
