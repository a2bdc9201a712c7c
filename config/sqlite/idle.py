"""Open connections that wait for the next request of a web server, whichever of its threads that comes to.

The one used last goes out first: its statements are prepared and its pages at hand. Kept by threads instead, they
stayed with the first sixteen of the hundreds that a burst of requests had called up, and every request that came to
another thread opened a connection of its own, which takes longer than most commands.
"""

import os
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from config.sqlite.base import Connection

MOST: Final = 64  # those beyond, of a burst or of many who waited, are closed
WITH_PAGES: Final = 16  # the others give their cache back and hold 0.7 MB. A hundred with theirs held a gigabyte.

_waiting: "deque[Connection] | None" = None  # those with their pages, which go out first
_bare: "deque[Connection]" = deque()  # and those without: what a burst left behind takes no pages from those in use
_mutex = threading.Lock()


def share() -> None:
    """From now on connections of this process wait here between requests. Without it a thread keeps its own."""
    global _waiting
    if _waiting is None:
        _waiting = deque()


def shared() -> bool:
    """Whether connections of this process wait here."""
    return _waiting is not None


def take(database: str) -> "Connection | None":
    """An open connection to the file that stands at `database` now, None when none waits."""
    if not (_waiting or _bare):
        return None
    file = file_at(database)
    with _mutex:
        found = _waiting.pop() if _waiting else _bare.pop() if _bare else None
    if found is not None and (file is None or found.file != file):  # another book was put in its place
        found.close()
        return None
    return found


def give_back(connection: "Connection") -> bool:
    """Let `connection` wait for the next request. False when it must be closed instead."""
    if _waiting is None or not connection.is_open or connection.in_transaction:
        return False
    with _mutex:
        if len(_waiting) < WITH_PAGES:
            _waiting.append(connection)
            return True
    connection.execute("PRAGMA shrink_memory").close()
    with _mutex:
        if len(_waiting) + len(_bare) >= MOST:
            return False
        _bare.append(connection)
    return True


def file_at(database: str) -> tuple[int, int] | None:
    """Which file that is, whatever its name: device and number; None of what is no file."""
    try:
        found = Path(database).stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


_left_to_parents: "list[deque[Connection]]" = []  # what another process opened is neither used nor closed here


def _forget_after_fork() -> None:
    global _mutex, _waiting, _bare
    _mutex = threading.Lock()
    if _waiting is not None:
        _left_to_parents.extend((_waiting, _bare))
        _waiting, _bare = deque(), deque()


os.register_at_fork(after_in_child=_forget_after_fork)
