"""Copies SQLite's write-ahead log into the database, outside of commits.

By itself SQLite copies in the commit that makes the log long enough. While a reader holds a
snapshot for seconds, SQLite can copy only what is older. The first commit afterwards copies
everything since, for a large part of a second. One thread of the web server copies instead, on its
own connection, while others go on.

The log restarts only when all of it was copied, which never happens under constant writing. So the
thread copies the rest, a twentieth of the log, in its own turn among the writers.
"""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Final

import structlog

from db.sqlite import write_queue

# Length of the log. The same few pages change again and again, and are then copied once.
COPY_ABOVE_BYTES: Final = 16 * 1024 * 1024
TURN_WITHIN_S: Final = 20.0
# Between two checks: after a burst the log's file stays long, however little is in it.
WAL_CHECK_EVERY_S: Final = 1.0
# If the thread dies, a commit copies a log of 256 MiB (pages of 4 KiB).
BACKSTOP_PAGES: Final = 65_536

log = structlog.get_logger("gatebook.sqlite")
_begun: Final[list[threading.Thread]] = []


def start_checkpointer(database: str) -> None:
    """Start the copying thread for the database file; it ends with the process."""
    thread = threading.Thread(target=_go_on, args=(database,), name="checkpoints", daemon=True)
    _begun.append(thread)
    thread.start()


def checkpoint_pages(otherwise: int) -> int:
    """Return the log length at which a commit copies: `otherwise` without thread."""
    return BACKSTOP_PAGES if any(thread.is_alive() for thread in _begun) else otherwise


class WalCheckpointer:
    """Copies the log. Use it as a context manager, from one thread."""

    def __init__(self, database: str) -> None:
        self._log = Path(f"{database}-wal")
        self._own = sqlite3.connect(database, timeout=1.0, isolation_level=None)
        # The log may restart only when the copy is on disk.
        self._own.execute("PRAGMA synchronous = FULL")
        self._place = write_queue.QueuePlace(write_queue.get_writer_queue(database))
        self._seen = 0

    def checkpoint_if_due(self) -> bool:
        """Copy what can be copied, if the log is long and changed. Waits for no reader."""
        try:
            status = self._log.stat()
        except FileNotFoundError:
            return False
        if status.st_size < COPY_ABOVE_BYTES or status.st_mtime_ns == self._seen:
            return False
        self._seen = status.st_mtime_ns
        if self._copied_all():
            self._place.take(TURN_WITHIN_S)
            try:
                self._copied_all()
            finally:
                self._place.leave()
        return True

    def _copied_all(self) -> bool:
        """Copy; return whether all that was there at the start could be copied."""
        _busy, frames, copied = self._own.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return bool(frames == copied)

    def close(self) -> None:
        """Close the connection."""
        self._own.close()


def _go_on(database: str) -> None:
    ending = threading.Event()  # never set: the thread ends with the process
    while True:
        try:
            with closing(WalCheckpointer(database)) as checkpoints:
                while not ending.wait(WAL_CHECK_EVERY_S):
                    checkpoints.checkpoint_if_due()
        except (sqlite3.Error, write_queue.BlockedError) as error:
            log.warning("checkpoint_failed", error=str(error))
            ending.wait(WAL_CHECK_EVERY_S)
