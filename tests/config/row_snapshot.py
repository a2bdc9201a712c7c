"""Initial rows of hundreds of tests, made once in each process and then inserted again."""

import pickle
import time
from collections.abc import Callable, Collection
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from django.apps import apps
from django.conf import settings
from django.db import connection, transaction

from db.triggers import suspend_triggers
from display import access_log
from journal.models import Entry
from ledger.tools import cache
from monitoring.stuck import rule_limits
from sessions import sessions

Made = TypeVar("Made")
Row = tuple[Any, ...]
Rows = dict[str, dict[Any, Row]]  # table -> primary key -> row


_FIRST: Final = ("journal_entry", "auth_user")


class Kept(Generic[Made]):
    """A snapshot of added rows, changed rows and artifact bytes.

    It is restored on the same rows every time, or made by its verbs where the journal has other
    entries. Every test rolls it back. After `for_s` seconds it is made again: dispatches have
    deadlines, and pages show ages. Triggers of the tables `unguarded` do not see the rows: they
    accept a row only in its first state.
    """

    def __init__(self, for_s: float = float("inf"), *, unguarded: Collection[str] = ()) -> None:
        self._for_s, self._unguarded = for_s, unguarded
        self._until = 0.0
        self._entries = 0  # before the snapshot
        self._added: Rows = {}
        self._changed: Rows = {}
        self._files: dict[Path, bytes] = {}
        self._made = b""

    def again(self, make: Callable[[], Made]) -> Made:
        """Call `make`, or insert the same rows again; return the result of `make`."""
        if time.monotonic() >= self._until:
            return self._make(make)
        if Entry.objects.count() != self._entries:
            return make()
        guards = suspend_triggers(connection, self._unguarded) if self._unguarded else nullcontext()
        with transaction.atomic(), guards:  # references hold only after all rows are inserted
            # Rows that decide are accepted only after their entries, and marks of passwords only
            # after these.
            for table in _FIRST:
                _put(table, list(self._added.get(table, {}).values()))
            for table, rows in self._changed.items():
                _change(table, rows)
            for table, rows in self._added.items():
                if table not in _FIRST:
                    _put(table, list(rows.values()))
        for path, content in self._files.items():
            file = Path(settings.MEDIA_ROOT) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        # Projects and sessions have the ids of the test before, which caches keep for seconds.
        cache.clear_tool_cache()
        for remembered in (rule_limits._cache, access_log._recent, sessions._moved):
            remembered.clear()
        made: Made = pickle.loads(self._made)  # noqa: S301 - pickled by `_make`
        return made

    def _make(self, make: Callable[[], Made]) -> Made:
        began, before, files = time.monotonic(), _all(), _files()
        made = make()
        after = _all()
        assert all(before[table].keys() <= after[table].keys() for table in before), (
            "an existing row is gone"
        )
        added = {
            table: {key: row for key, row in rows.items() if key not in before[table]}
            for table, rows in after.items()
        }
        changed = {
            table: {key: rows[key] for key, row in before[table].items() if rows[key] != row}
            for table, rows in after.items()
        }
        self._added = {table: rows for table, rows in added.items() if rows}
        self._changed = {table: rows for table, rows in changed.items() if rows}
        self._files = {path: content for path, content in _files().items() if path not in files}
        self._entries, self._made, self._until = (
            len(before["journal_entry"]),
            pickle.dumps(made),
            began + self._for_s,
        )
        return made


def _tables() -> dict[str, str]:
    """Return every table with the column of its key."""
    metas = [
        model._meta for model in apps.get_models(include_auto_created=True) if model._meta.managed
    ]
    return {meta.db_table: str(meta.pk.column) for meta in metas}


def _all() -> Rows:
    """Return every row of every table. On PostgreSQL a row is one text, which an INSERT accepts."""
    row = '"{0}"::text' if connection.vendor == "postgresql" else "*"
    tables: Rows = {}
    with connection.cursor() as cursor:
        for table, key in _tables().items():
            cursor.execute(f'SELECT "{key}", {row.format(table)} FROM "{table}" ORDER BY "{key}"')
            tables[table] = {values[0]: tuple(values[1:]) for values in cursor.fetchall()}
    return tables


def _files() -> dict[Path, bytes]:
    """Return artifact bytes by path below the folder of the test."""
    folder = Path(settings.MEDIA_ROOT)
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def _put(table: str, rows: list[Row]) -> None:
    if not rows:
        return
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # An entry is written by this transaction, whatever its number was in the snapshot.
            names = [
                str(field.column)
                for field in (Entry._meta.fields if table == Entry._meta.db_table else ())
                if field.column != "txid"
            ]
            into = f" ({', '.join(names)})" if names else ""
            columns = ", ".join(f"(one).{name}" for name in names or ["*"])
            statement = (
                f'INSERT INTO "{table}"{into} SELECT {columns} FROM unnest(%s::"{table}"[]) AS one'
            )
            cursor.execute(statement, [[row[0] for row in rows]])
        else:
            places = ", ".join(["%s"] * len(rows[0]))
            cursor.executemany(f'INSERT INTO "{table}" VALUES ({places})', rows)


def _change(table: str, rows: dict[Any, Row]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT * FROM "{table}" LIMIT 0')
        columns = [f'"{column[0]}"' for column in cursor.description]
        key = _tables()[table]
        for identity, row in rows.items():
            if connection.vendor == "postgresql":
                values = f'(SELECT (one.row).* FROM (SELECT %s::"{table}" AS row) AS one)'
                statement = (
                    f'UPDATE "{table}" SET ({", ".join(columns)}) = {values} WHERE "{key}" = %s'
                )
            else:
                places = ", ".join(f"{column} = %s" for column in columns)
                statement = f'UPDATE "{table}" SET {places} WHERE "{key}" = %s'
            cursor.execute(statement, [*row, identity])
