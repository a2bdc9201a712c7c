"""Connection pool for SQLite: connections wait for the next request of any thread.

The connection used last is taken first, since its statements are prepared and its pages cached.
When threads kept their connections, these stayed with the first sixteen of hundreds of threads that
a burst had started. Every request in another thread opened a connection of its own, which takes
longer than most commands.
"""

import os
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from db.sqlite.base import Connection

MAX_IDLE_CONNECTIONS: Final = 64  # further connections, of a burst or of many waiters, are closed
# Further connections free their caches and hold 0.7 MB each. A hundred with caches held 1 GB.
MAX_WITH_PAGES: Final = 16

_waiting: "deque[Connection] | None" = None  # with cached pages; taken first
# Without cached pages: left by a burst, and never used before the others.
_bare: "deque[Connection]" = deque()
_mutex = threading.Lock()


def enable_pooling() -> None:
    """Pool this process's connections between requests, not one per thread."""
    global _waiting
    if _waiting is None:
        _waiting = deque()


def is_pooling() -> bool:
    """Return whether connections of this process are pooled."""
    return _waiting is not None


def take_connection(database: str) -> "Connection | None":
    """Return a pooled connection to the file that is at `database` now, or None."""
    if not (_waiting or _bare):
        return None
    file = identify_file(database)
    with _mutex:
        connection = _waiting.pop() if _waiting else _bare.pop() if _bare else None
    if connection is not None and (file is None or connection.file != file):
        # Another file has replaced the one that it has open.
        connection.close()
        return None
    return connection


def return_connection(connection: "Connection") -> bool:
    """Return `connection` to the pool. False when it must be closed instead."""
    if _waiting is None or not connection.is_open or connection.in_transaction:
        return False
    with _mutex:
        if len(_waiting) < MAX_WITH_PAGES:
            _waiting.append(connection)
            return True
    connection.execute("PRAGMA shrink_memory").close()
    with _mutex:
        if len(_waiting) + len(_bare) >= MAX_IDLE_CONNECTIONS:
            return False
        _bare.append(connection)
    return True


def identify_file(database: str) -> tuple[int, int] | None:
    """Return device and inode of a file, whatever its name; None for no file."""
    try:
        status = Path(database).stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


# Connections of the parent process are neither used nor closed here.
_left_to_parents: "list[deque[Connection]]" = []


def _forget_after_fork() -> None:
    global _mutex, _waiting, _bare
    _mutex = threading.Lock()
    if _waiting is not None:
        _left_to_parents.extend((_waiting, _bare))
        _waiting, _bare = deque(), deque()


os.register_at_fork(after_in_child=_forget_after_fork)
