"""SQLite backend: Django's, with durable settings and a fair queue of writers.

A connection enters the queue before it begins a transaction, or before a single writing statement
outside one. It leaves as soon as SQLite reports no open transaction: after a commit, a rollback, a
close, a failed BEGIN, or an error on which SQLite itself rolled back. SQLite is asked after every
operation, so no path can keep the turn by mistake.
"""

import re
import sqlite3
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Self

from django.db.backends.sqlite3 import base as django_sqlite

from db.sqlite import connection_pool, wal_checkpointer, write_queue
from db.sqlite.schema_editor import SchemaEditor

CACHE_KIB = 16384
# After so many changed rows a connection frees its cache. Another connection's commit invalidates
# it anyway, and sixteen idle connections held 50 MB of such pages.
SHRINK_AFTER_ROWS = 500
# The write-ahead log may grow under long readers. A checkpoint truncates it to this size.
LOG_LIMIT_BYTES = 64 * 1024 * 1024
# Log pages (4 KiB) before a commit copies them into the database. The same few pages change again
# and again; at the default of 1,000 each is copied more often. In a web server a thread copies
# (checkpoints.py).
CHECKPOINT_PAGES = 4_000

# Longer statements have lists of values, so they are hardly ever repeated.
REPEATED_CHARACTERS = 8192

# Stands for a script, which ends the open transaction and may then do anything.
ANY_SCRIPT = "BEGIN"
READS_ONLY = frozenset({"SELECT", "EXPLAIN", "PRAGMA", "VALUES", "ATTACH", "DETACH"})
ENDS = frozenset({"COMMIT", "END", "ROLLBACK", "RELEASE"})
_FIRST_WORD = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(\w+)", re.DOTALL)
_WRITING_WORD = re.compile(r"\b(?:INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)


def needs_turn(statement: str) -> bool:
    """Return whether `statement` writes or opens a transaction; True when unsure."""
    if statement.startswith("SELECT"):
        return False
    match = _FIRST_WORD.match(statement)
    word = match.group(1).upper() if match else ""
    if word == "WITH":
        return _WRITING_WORD.search(statement) is not None
    return word not in READS_ONLY and word not in ENDS


@lru_cache(maxsize=256)
def _convert_placeholders(query: str) -> str:
    return str(django_sqlite.FORMAT_QMARK_REGEX.sub("?", query).replace("%%", "%"))


class Cursor(django_sqlite.SQLiteCursorWrapper):
    """Django's cursor, which waits for its turn to write outside a transaction."""

    connection: "Connection"

    def execute(self, query: str, params: Any = None) -> Self:
        if not self.connection.enters(query):
            super().execute(query, params)
            return self
        try:
            super().execute(query, params)
        finally:
            self.connection.settle()
        return self

    def convert_query(self, query: str, *, param_names: Any = None) -> str:
        """Return the text with SQLite's placeholders. Pages repeat the same texts."""
        if param_names is None and len(query) <= REPEATED_CHARACTERS:
            return _convert_placeholders(query)
        return str(super().convert_query(query, param_names=param_names))

    def executemany(self, query: str, param_list: Iterable[Any]) -> Self:
        self.connection.enters(query)
        try:
            super().executemany(query, param_list)
        finally:
            self.connection.settle()
        return self

    def executescript(self, sql_script: str) -> Self:
        self.connection.enters(ANY_SCRIPT)
        try:
            super().executescript(sql_script)
        finally:
            self.connection.settle()
        return self


class Connection(sqlite3.Connection):
    """A connection with at most one place in its database's queue of writers."""

    place: write_queue.QueuePlace
    wait_s: float
    rows_when_shrunk: int = 0
    is_open: bool = False
    file: tuple[int, int] | None = None  # device and inode of the open file

    def __init__(self, database: str, timeout: float = 5.0, **kwargs: Any) -> None:
        self.place = write_queue.QueuePlace(write_queue.get_writer_queue(database))
        self.wait_s = timeout
        super().__init__(database, timeout, **kwargs)
        self.is_open, self.file = True, connection_pool.identify_file(database)

    def enters(self, statement: str) -> bool:
        """Wait for the turn if `statement` needs it; False when it only reads.

        After True the caller runs the statement and calls `settle` in every case.
        """
        if self.in_transaction:
            return True
        if not needs_turn(statement):
            return False
        try:
            self.place.take(self.wait_s)
        except write_queue.BlockedError as reason:
            raise sqlite3.OperationalError(f"database is locked: {reason}") from reason
        if self.place.queue.lock_file is not None:
            self.place.queue.lock_file.take()
        return True

    def settle(self) -> None:
        """Leave the queue unless a transaction is open; call after it may have ended."""
        if self.place.held and self.place.queue.lock_file is not None:
            self.place.queue.lock_file.release()
        if not self.in_transaction:
            self.place.leave()
            if self.total_changes > self.rows_when_shrunk + SHRINK_AFTER_ROWS:
                self.rows_when_shrunk = self.total_changes
                super().execute("PRAGMA shrink_memory").close()

    def cursor(self, factory: Any = Cursor) -> Any:
        return super().cursor(factory)

    # The next three use sqlite3's own cursor, so they wait for the turn themselves.

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self.enters(arguments[0])
        try:
            return super().execute(*arguments)
        finally:
            self.settle()

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        self.enters(arguments[0])
        try:
            return super().executemany(*arguments)
        finally:
            self.settle()

    def executescript(self, *arguments: Any) -> sqlite3.Cursor:
        self.enters(ANY_SCRIPT)
        try:
            return super().executescript(*arguments)
        finally:
            self.settle()

    def commit(self) -> None:
        try:
            super().commit()
        finally:
            self.settle()

    def rollback(self) -> None:
        try:
            super().rollback()
        finally:
            self.settle()

    def close(self) -> None:
        self.is_open = False
        try:
            super().close()
        finally:
            # Closing rolls back, and a connection that failed to close is never used again.
            self.place.leave()

    def __del__(self) -> None:
        # A thread ended with an open transaction, so its connection is collected without a close.
        if hasattr(self, "place"):
            self.place.leave()


class DatabaseWrapper(django_sqlite.DatabaseWrapper):
    """Django's wrapper over queueing connections, set up so that commits are durable."""

    display_name = "SQLite"
    SchemaEditorClass = SchemaEditor

    def get_connection_params(self) -> dict[str, Any]:
        return {**super().get_connection_params(), "factory": Connection}

    def get_new_connection(self, conn_params: dict[str, Any]) -> Connection:
        waiting = connection_pool.take_connection(conn_params["database"])
        if waiting is not None:
            return waiting
        connection: Connection = super().get_new_connection(conn_params)
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",
            # Without it INSERT OR REPLACE deletes rows without the append-only triggers.
            "recursive_triggers = ON",
            f"cache_size = -{CACHE_KIB}",
            # Each IN list of a CHECK constraint makes a small temporary table per row. Past a dozen
            # SQLite uses temporary files, and an effect's UPDATE took 440 µs where it takes 35 in
            # memory.
            "temp_store = MEMORY",
            f"journal_size_limit = {LOG_LIMIT_BYTES}",
            f"wal_autocheckpoint = {wal_checkpointer.checkpoint_pages(CHECKPOINT_PAGES)}",
        ):
            connection.execute(f"PRAGMA {pragma}").close()
        return connection

    def connect(self) -> None:
        super().connect()
        if connection_pool.is_pooling():
            self.close_at = time.monotonic()  # at the end of the request

    def _close(self) -> None:
        # Inside a transaction the wrapper keeps its connection, and SQLite rolls back on close.
        if self.connection is not None and (
            self.in_atomic_block or not connection_pool.return_connection(self.connection)
        ):
            with self.wrap_database_errors:
                self.connection.close()

    def create_cursor(self, name: str | None = None) -> Cursor:
        cursor: Cursor = self.connection.cursor()
        return cursor
