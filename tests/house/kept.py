"""Rows that hundreds of tests begin with, made by the verbs once in each process and then put in again."""

import pickle
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from django.apps import apps
from django.db import connection

from inquiry import looks
from inquiry.stuck import limits
from ledger import declared
from sessions import sessions

Made = TypeVar("Made")
Rows = dict[str, list[tuple[Any, ...]]]


class Kept(Generic[Made]):
    """What was made once and the rows that it added. It stands on the same rows every time, and changes none of them.

    Every test rolls it back.
    """

    def __init__(self) -> None:
        self._added: Rows | None = None
        self._made = b""

    def again(self, make: Callable[[], Made]) -> Made:
        """`make` it, or put the same rows in again; return what was made, as it was then."""
        if self._added is None:
            before = _all()
            made = make()
            self._added = _beyond(before, _all())
            self._made = pickle.dumps(made)
            return made
        for table, rows in self._added.items():
            _put(table, rows)
        # Projects and sessions have the ids of the test before, of which a process remembers something for seconds.
        declared.forget()
        for remembered in (limits._kept, looks._recent, sessions._moved):
            remembered.clear()
        found: Made = pickle.loads(self._made)  # noqa: S301 - pickled above
        return found


def _all() -> Rows:
    """Every row of every table. On PostgreSQL a row is one text, which is also how it takes it back."""
    row = '"{0}"::text' if connection.vendor == "postgresql" else "*"
    with connection.cursor() as cursor:
        found = {}
        for table in _tables():
            cursor.execute(f'SELECT {row.format(table)} FROM "{table}"')
            found[table] = cursor.fetchall()
    return found


def _tables() -> Iterable[str]:
    return [model._meta.db_table for model in apps.get_models(include_auto_created=True) if model._meta.managed]


def _beyond(before: Rows, after: Rows) -> Rows:
    stood = {table: set(rows) for table, rows in before.items()}
    assert all(stood[table] <= set(after[table]) for table in stood), "a row that stood has changed"
    added = {table: [row for row in rows if row not in stood[table]] for table, rows in after.items()}
    return {table: rows for table, rows in added.items() if rows}


def _put(table: str, rows: list[tuple[Any, ...]]) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            texts = [row[0] for row in rows]
            statement = f'INSERT INTO "{table}" SELECT (one).* FROM unnest(%s::"{table}"[]) AS one'
            cursor.execute(statement, [texts])
        else:
            places = ", ".join(["%s"] * len(rows[0]))
            cursor.executemany(f'INSERT INTO "{table}" VALUES ({places})', rows)
