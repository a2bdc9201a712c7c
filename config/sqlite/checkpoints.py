"""Copies the write-ahead log of SQLite into the database beside those who write, and not in their commits.

Left to itself SQLite copies in the commit that makes the log long enough. While somebody reads for seconds it can copy
only what is older than that read, and whoever commits first afterwards copies all that has come together since, for a
large part of a second. Here one thread of the web server does it, on a connection of its own: the others go on.

The log is begun anew only when all of it was copied, which under constant writing is never: what came meanwhile, a
twentieth of it, is copied in the thread's own turn among the writers.
"""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Final

import structlog

from config.sqlite import queue

LONG_BYTES: Final = 16 * 1024 * 1024  # of the log: the same few pages change again and again, and are copied once then
TURN_WITHIN_S: Final = 20.0
EVERY_S: Final = 1.0  # between two looks: after a burst the log's file stays long, however little is in it
# Should the thread fall, a commit copies after all, of a log of 256 MiB; pages of 4 KiB.
BACKSTOP_PAGES: Final = 65_536

log = structlog.get_logger("gatebook.sqlite")
_begun: Final[list[threading.Thread]] = []


def begin(database: str) -> None:
    """Begin to copy for the book at `database`, in a thread that ends with the process."""
    thread = threading.Thread(target=_go_on, args=(database,), name="checkpoints", daemon=True)
    _begun.append(thread)
    thread.start()


def pages(otherwise: int) -> int:
    """After how many pages of the log a commit of this process copies them: `otherwise`, unless the thread does."""
    return BACKSTOP_PAGES if any(thread.is_alive() for thread in _begun) else otherwise


class Checkpoints:
    """The copying itself. Use it as a context; belongs to one thread."""

    def __init__(self, database: str) -> None:
        self._log = Path(f"{database}-wal")
        self._own = sqlite3.connect(database, timeout=1.0, isolation_level=None)
        self._own.execute("PRAGMA synchronous = FULL")  # the log may be begun anew only when the copy is on the disk
        self._place = queue.Place(queue.for_database(database))
        self._seen = 0

    def look(self) -> bool:
        """Copy what may be copied, if the log is long and was written since the last look. Waits for no reader."""
        try:
            found = self._log.stat()
        except FileNotFoundError:
            return False
        if found.st_size < LONG_BYTES or found.st_mtime_ns == self._seen:
            return False
        self._seen = found.st_mtime_ns
        if self._copied_all():
            self._place.take(TURN_WITHIN_S)
            try:
                self._copied_all()
            finally:
                self._place.leave()
        return True

    def _copied_all(self) -> bool:
        """Copy, and return whether that was all there was at its beginning: no reader stood in the way."""
        _busy, frames, copied = self._own.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return bool(frames == copied)

    def close(self) -> None:
        """Hang up."""
        self._own.close()


def _go_on(database: str) -> None:
    ending = threading.Event()  # that nobody sets: the thread ends with the process
    while True:
        try:
            with closing(Checkpoints(database)) as checkpoints:
                while not ending.wait(EVERY_S):
                    checkpoints.look()
        except (sqlite3.Error, queue.BlockedError) as error:
            log.warning("checkpoint_failed", error=str(error))
            ending.wait(EVERY_S)
