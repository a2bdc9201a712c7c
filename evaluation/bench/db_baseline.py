"""The floors: the same rows written into the same tables with bare SQL, from memory.

A workload is posted to the server batch by batch, and the rows of each batch are read back. They
are then written into a clone of the database (same schema, constraints, indexes and triggers), one
transaction per batch:

`once`     each row in its final state, by COPY on PostgreSQL, by executemany on SQLite
`written`  each row as often as it was written: an effect with facts in three batches is written
           three times. SQLite uses executemany of an upsert. PostgreSQL, where COPY cannot update,
           uses COPY into a temporary table and an upsert from there; the journal as in `once`

The floor's client (psycopg or sqlite3 under Python) is counted with the database.
"""

import gc
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from evaluation.bench import procfs
from evaluation.bench.installation import Installation

JOURNAL: Final = ("journal_entry", "journal_body")
LEDGER: Final = {"ledger_effect": ("id",), "ledger_attempt": ("effect_id", "number")}
# Set by the database: an unreferenced serial number, and the number of the writing transaction.
_OWN_COLUMNS: Final = {("ledger_attempt", "id"), ("journal_entry", "txid")}
_WRITTEN_BY: Final = {
    "journal_entry": "position > {last}",
    "journal_body": "entry_id > {last}",
    "ledger_effect": "id IN (SELECT effect FROM journal_entry WHERE position > {last})",
    "ledger_attempt": "effect_id IN (SELECT effect FROM journal_entry WHERE position > {last})",
}
_PRAGMAS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "recursive_triggers = ON",
    "cache_size = -65536",
    "temp_store = MEMORY",
)
Row = tuple[Any, ...]


@dataclass
class BatchRows:
    """The rows of each table that one batch wrote."""

    rows: dict[str, list[Row]]
    items: int


class Recorder:
    """Reads back the rows that the server wrote, batch by batch."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.columns: dict[str, list[str]] = {}
        self.types: dict[str, list[int]] = {}
        self.last = 0

    def record(self, post: Callable[[], object], items: int) -> BatchRows:
        """Call `post`, which posts one batch of `items`, and return the rows that it wrote."""
        self.last = int(self._read("SELECT COALESCE(MAX(position), 0) FROM journal_entry")[0][0])
        post()
        rows = {}
        for table, condition in _WRITTEN_BY.items():
            self._load_columns(table)
            names = ", ".join(self.columns[table])
            rows[table] = self._read(
                f"SELECT {names} FROM {table} WHERE {condition.format(last=self.last)}"
            )
        return BatchRows(rows, items)

    def _load_columns(self, table: str) -> None:
        if table in self.columns:
            return
        if self.installation.cluster is None:
            with closing(sqlite3.connect(self.installation.sqlite_file)) as connection:
                columns = [(row[1], 0) for row in connection.execute(f"PRAGMA table_info({table})")]
        else:
            with psycopg.connect(self.installation.url) as connection:
                described = connection.execute(f"SELECT * FROM {table} LIMIT 0").description or []
                columns = [(column.name, column.type_code) for column in described]
        columns = [(name, code) for name, code in columns if (table, name) not in _OWN_COLUMNS]
        self.columns[table] = [name for name, _ in columns]
        self.types[table] = [code for _, code in columns]

    def _read(self, query: str) -> list[Row]:
        if self.installation.cluster is None:
            with closing(sqlite3.connect(self.installation.sqlite_file, timeout=20)) as connection:
                return connection.execute(query).fetchall()
        with psycopg.connect(self.installation.url) as connection:
            return connection.execute(query.encode()).fetchall()


def copy_sessions(source: Installation, target: Installation) -> None:
    """Copy the sessions that `target` does not have yet, of the agents that it has.

    Other parts of the benchmark may have run before, with agents of their own.
    """
    table = "agent_sessions_session"
    if source.cluster is None:
        with closing(sqlite3.connect(target.sqlite_file, isolation_level=None)) as connection:
            connection.execute("ATTACH ? AS source", [str(source.sqlite_file)])
            connection.execute(
                f"INSERT INTO main.{table} SELECT * FROM source.{table} WHERE id NOT IN (SELECT id "
                f"FROM main.{table}) AND agent_id IN (SELECT id FROM main.accounts_agent)"
            )
        return
    with psycopg.connect(source.url) as old, psycopg.connect(target.url) as new:
        present = [row[0] for row in new.execute(f"SELECT id FROM {table}").fetchall()]
        with (
            old.cursor().copy(f"COPY (SELECT * FROM {table}) TO STDOUT (FORMAT BINARY)") as reading,
            new.cursor() as cursor,
        ):
            cursor.execute(f"CREATE TEMPORARY TABLE copied (LIKE {table})")
            with cursor.copy("COPY copied FROM STDIN (FORMAT BINARY)") as writing:
                for piece in reading:
                    writing.write(piece)
            cursor.execute(
                f"INSERT INTO {table} SELECT * FROM copied WHERE id <> ALL (%s)"
                " AND agent_id IN (SELECT id FROM accounts_agent)",
                [present],
            )


def merge_rows(recorder: Recorder, batches: Sequence[BatchRows]) -> list[BatchRows]:
    """Return the batches with each ledger row once, in its final state, where it was first written."""
    placed = [
        BatchRows({table: batch.rows[table] for table in JOURNAL}, batch.items) for batch in batches
    ]
    for table, key_columns in LEDGER.items():
        places = [recorder.columns[table].index(name) for name in key_columns]
        keyed = [
            {tuple(row[place] for place in places): row for row in batch.rows[table]}
            for batch in batches
        ]
        final: dict[Row, Row] = {}
        for rows in keyed:
            final.update(rows)
        for batch, rows in zip(placed, keyed, strict=True):
            batch.rows[table] = [final.pop(key) for key in rows if key in final]
    return placed


def write_rows(
    target: Installation, recorder: Recorder, batches: Sequence[BatchRows], *, upsert: bool
) -> tuple[float, float]:
    """Write `batches` into `target`. Returns (CPU seconds of client and database, wall seconds)."""
    gc.collect()
    gc.disable()
    try:
        if target.cluster is None:
            with closing(sqlite3.connect(target.sqlite_file, isolation_level=None)) as file:
                for pragma in _PRAGMAS:
                    file.execute(f"PRAGMA {pragma}")
                return _measure_work(
                    target, lambda: _run_sqlite(file, recorder, batches, upsert=upsert)
                )
        # The connection outlives the measurement, so that its process can still be measured.
        with psycopg.connect(target.url) as connection:
            return _measure_work(
                target, lambda: _run_postgresql(connection, recorder, batches, upsert=upsert)
            )
    finally:
        gc.enable()


def _measure_work(target: Installation, work: Callable[[], None]) -> tuple[float, float]:
    before = procfs.cpu_s(target.database_roots())
    started, used = time.monotonic(), time.process_time()
    work()
    used, wall_s = time.process_time() - used, time.monotonic() - started
    return used + procfs.cpu_s(target.database_roots()) - before, wall_s


def _run_postgresql(
    connection: psycopg.Connection,
    recorder: Recorder,
    batches: Iterable[BatchRows],
    *,
    upsert: bool,
) -> None:
    with connection.cursor() as cursor:
        for table in LEDGER if upsert else ():
            names = ", ".join(recorder.columns[table])
            cursor.execute(
                f"CREATE TEMPORARY TABLE copied_{table} AS SELECT {names} FROM {table} LIMIT "
                "0".encode()
            )
        connection.commit()
        for batch in batches:
            for table, rows in batch.rows.items():
                if not rows:
                    continue
                columns = recorder.columns[table]
                merged = upsert and table in LEDGER
                into = f"copied_{table}" if merged else table
                with cursor.copy(
                    f"COPY {into} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
                ) as copy:
                    copy.set_types(recorder.types[table])
                    for row in rows:
                        copy.write_row(row)
                if merged:
                    cursor.execute(
                        _upsert(table, columns, f"SELECT {', '.join(columns)} FROM {into}").encode()
                    )
                    cursor.execute(f"TRUNCATE {into}".encode())
            connection.commit()


def _run_sqlite(
    connection: sqlite3.Connection,
    recorder: Recorder,
    batches: Iterable[BatchRows],
    *,
    upsert: bool,
) -> None:
    for batch in batches:
        connection.execute("BEGIN IMMEDIATE")
        for table, rows in batch.rows.items():
            columns = recorder.columns[table]
            marks = ", ".join(["?"] * len(columns))
            if upsert and table in LEDGER:
                statement = _upsert(table, columns, f"VALUES ({marks})")
            else:
                statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
            connection.executemany(statement, rows)
        connection.execute("COMMIT")


def _upsert(table: str, columns: Sequence[str], source: str) -> str:
    key = LEDGER[table]
    changed = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
    return f"INSERT INTO {table} ({', '.join(columns)}) {source} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"
