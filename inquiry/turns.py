"""Turns of queries: PLACES run at once in the whole house, each of another author; others wait without a connection.

Twenty authors of the worst queries then cost those who write no more than PLACES do, and one author of them leaves a
place to everybody else. In a process its threads wait for each other; between the processes that serve one PostgreSQL,
advisory locks on the connection that is about to search say who has a place, and fall with it.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.db import DatabaseError, connection

from journal import sql

PLACES: Final = 2
LOOK_S: Final = 0.05  # between two looks for a place that another process may have given back
_PLACE, _AUTHOR = 0x7475, 0x6175  # keep these advisory locks apart from others'
# The places are looked for in turn, and only by an author of whom nothing runs.
_TAKE: Final = (
    "SELECT CASE WHEN NOT pg_try_advisory_lock(%s, %s) THEN -2 "
    + " ".join(f"WHEN pg_try_advisory_lock(%s, {place}) THEN {place}" for place in range(PLACES))
    + " ELSE -1 END"
)
_GIVE_BACK: Final = "SELECT pg_advisory_unlock(%s, %s), pg_advisory_unlock(%s, %s)"

_running: set[int] = set()  # authors of the queries that run in this process
_changed = threading.Condition()


@contextmanager
def taken(author: int, patience_s: float) -> Iterator[bool]:
    """Take a place for a query of `author` (any whole number). Yields False when none came free within `patience_s`."""
    until = time.monotonic() + patience_s
    if not _take(author, until):
        yield False
        return
    try:
        if connection.vendor == "postgresql":
            with _among_processes(author % 2**31, until) as found:
                yield found
        else:
            yield True
    finally:
        with _changed:
            _running.discard(author)
            _changed.notify_all()


def _take(author: int, until: float) -> bool:
    """Wait for a place in this process."""
    with _changed:
        if _is_full(author):
            _let_go()
        while _is_full(author):
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            _changed.wait(left_s)
        _running.add(author)
    return True


def _is_full(author: int) -> bool:
    return author in _running or len(_running) >= PLACES


def _let_go() -> None:
    """Keep nobody else from the connection while waiting."""
    if not connection.in_atomic_block:
        connection.close()


def hang_up() -> None:
    """End the connection itself: a pool would hand it out again with all that is set and held on it."""
    if connection.connection is not None and not connection.in_atomic_block:
        connection.connection.close()
        connection.close()


@contextmanager
def _among_processes(author: int, until: float) -> Iterator[bool]:
    place = _look(author)
    while place < 0:
        if time.monotonic() >= until:
            yield False
            return
        _let_go()
        time.sleep(LOOK_S)
        place = _look(author)
    try:
        yield True
    finally:
        try:
            sql.rows(_GIVE_BACK, [_PLACE, place, _AUTHOR, author])
        except DatabaseError:
            hang_up()  # whoever were given it next would have the place


def _look(author: int) -> int:
    """The place that was taken on this connection; below 0 when there was none."""
    place: int = sql.rows(_TAKE, [_AUTHOR, author, *([_PLACE] * PLACES)])[0][0]
    if place == -1:
        sql.rows("SELECT pg_advisory_unlock(%s, %s)", [_AUTHOR, author])
    return place
