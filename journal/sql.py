"""Plain SQL on the connection of the present thread, for the writing modules and for what stands before every request.

Django makes a cursor and three wrappers for every statement, which costs more than most of the statements here; and
psycopg tells the server a type for every parameter (a number's by its size, none for None), so that one text would be
prepared again for every mixture of them. Connections, transactions and the kinds of errors stay Django's.
Texts mark parameters with %s and hold no other per cent sign. A UUID is given as `vendor_id` makes it.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connection, connections


def rows(text: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run a statement that gives rows, and return them all."""
    database = connections[DEFAULT_DB_ALIAS]
    with database.wrap_database_errors:
        fetched: list[tuple[Any, ...]] = _run(database, text, parameters).fetchall()
    return fetched


def write(text: str, parameters: Sequence[Any] = ()) -> int:
    """Run a statement that writes, and return how many rows it wrote."""
    database = connections[DEFAULT_DB_ALIAS]
    with database.wrap_database_errors:
        return int(_run(database, text, parameters).rowcount)


def write_each(text: str, parameters: Iterable[Sequence[Any]]) -> int:
    """Run a statement for each of `parameters`, on SQLite, and return how many rows were written together."""
    database: Any = connections[DEFAULT_DB_ALIAS]
    database.validate_no_broken_transaction()
    with database.wrap_database_errors:
        return int(database.connection.executemany(_question_marks(text), parameters).rowcount)


def vendor_id(value: UUID) -> UUID | str:
    """A UUID as SQL takes it on the present vendor."""
    return value if _is_postgresql() else value.hex


def wanted(sort: str) -> str:
    """A table `wanted` of one column `key`, a `sort` of PostgreSQL's, for FROM; its one parameter `keys` makes.

    To be followed by CROSS JOIN and a condition: so SQLite looks each key up, whatever its planner believes.
    """
    if _is_postgresql():
        return f"unnest(%s::{sort}[]) AS wanted(key)"
    return "(SELECT value AS key FROM json_each(%s)) AS wanted"


def keys(values: Iterable[int | str]) -> str:
    """Numbers, ids as text or plain words, as `wanted` takes them and, on PostgreSQL, whatever takes an array."""
    return f"{{{','.join(map(str, values))}}}" if _is_postgresql() else json.dumps(list(values))


def as_text(value: UUID) -> str:
    """A UUID as `CAST(… AS text)` gives it: a fifth of what it costs to make a UUID of each of many."""
    return str(value) if _is_postgresql() else value.hex


@cache
def _is_postgresql() -> bool:
    """Asked for every id; a process has one database, and through Django's proxy each look costs as much as an id."""
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
    """As the server takes it. Psycopg would make this of a long text, or of many parameters, at every execution."""
    first, *rest = text.split("%s")
    return "".join([first, *(f"${number}{part}" for number, part in enumerate(rest, 1))]).encode()


def _plain_cursor(raw: Any) -> Any:
    """A cursor of psycopg that leaves the types of numbers and UUIDs to the server, as psycopg does those of text."""
    from psycopg import RawCursor
    from psycopg.adapt import Dumper

    class Number(Dumper):
        """A whole number of any size."""

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
