"""Plain SQL on the connection of the present thread, for the writing modules and for what stands before every request.

Django makes a cursor and three wrappers for every statement, which costs more than most of the statements here; and
psycopg tells the server a type for every parameter (a number's by its size, none for None), so that one text would be
prepared again for every mixture of them. Connections, transactions and the kinds of errors stay Django's.
Texts mark parameters with %s and hold no other per cent sign. A UUID is given as `vendor_id` makes it.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import connection


def rows(text: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run a statement that gives rows, and return them all."""
    with connection.wrap_database_errors:
        found: list[tuple[Any, ...]] = _run(text, parameters).fetchall()
    return found


def write(text: str, parameters: Sequence[Any] = ()) -> int:
    """Run a statement that writes, and return how many rows it wrote."""
    with connection.wrap_database_errors:
        return int(_run(text, parameters).rowcount)


def write_each(text: str, parameters: Iterable[Sequence[Any]]) -> int:
    """Run a statement for each of `parameters`, on SQLite, and return how many rows were written together."""
    connection.validate_no_broken_transaction()
    with connection.wrap_database_errors:
        return int(connection.connection.executemany(_question_marks(text), parameters).rowcount)


def vendor_id(value: UUID) -> UUID | str:
    """A UUID as SQL takes it on the present vendor."""
    return value if connection.vendor == "postgresql" else value.hex


def _run(text: str, parameters: Sequence[Any]) -> Any:
    connection.validate_no_broken_transaction()
    raw = connection.connection
    if raw is None:
        connection.ensure_connection()
        raw = connection.connection
    if connection.vendor != "postgresql":
        return raw.execute(_question_marks(text), parameters)
    cursor = getattr(raw, "plain_cursor", None)
    if cursor is None:
        raw.plain_cursor = cursor = _plain_cursor(raw)
    return cursor.execute(text, parameters, prepare=True)


@lru_cache(maxsize=1024)
def _question_marks(text: str) -> str:
    return text.replace("%s", "?")


def _plain_cursor(raw: Any) -> Any:
    """A cursor of psycopg that leaves the types of numbers and UUIDs to the server, as psycopg does those of text."""
    from psycopg import Cursor
    from psycopg.adapt import Dumper

    class Number(Dumper):
        """A whole number of any size."""

        def dump(self, obj: int) -> bytes:
            return b"%d" % obj

    class Identity(Dumper):
        """A UUID."""

        def dump(self, obj: UUID) -> bytes:
            return obj.hex.encode()

    cursor = Cursor(raw)
    cursor.adapters.register_dumper(int, Number)
    cursor.adapters.register_dumper(UUID, Identity)
    return cursor
