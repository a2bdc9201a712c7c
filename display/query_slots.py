"""Query slots: a few search queries run at a time, one per author; others wait in a queue.

Waiting queries hold no connection. With slots, 20 authors of slow queries cost writers no more than
a few do, and one author cannot block all others. A free slot goes to the author whose queries held
slots for the shortest recent time in this process.
Threads of a process queue in memory. Processes on one PostgreSQL use advisory locks on the
searching connection, which are released with it. On SQLite, long reads also share one processor
(db/sqlite/cpu_share.py).
"""

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Final

from django.conf import settings
from django.db import DatabaseError, connection

from db import raw_sql

DEFAULT_SLOTS: Final = 2  # Maximum without settings.GATEBOOK_SEARCH_PLACES.
HALF_LIFE_S: Final = 60.0  # Half-life of an author's slot time.
MAX_REMEMBERED_AUTHORS: Final = 1_000  # Authors remembered.
SLOT_POLL_S: Final = 0.02  # Interval of checks for a slot that another process may have released.
_PLACE, _AUTHOR = 0x7475, 0x6175  # Namespaces of these advisory locks.
_RELEASE: Final = "SELECT pg_advisory_unlock(%s, %s), pg_advisory_unlock(%s, %s)"

_running: set[int] = set()  # Authors of the queries that run in this process.
_waiting: Final[list[int]] = []  # Authors of the waiting queries, in order of arrival.
# Seconds that an author's queries held slots, and when that was computed.
_held: Final[dict[int, tuple[float, float]]] = {}
_changed = threading.Condition()


def slot_count() -> int:
    """Return the number of slots; on PostgreSQL, one processor remains free for writers.

    On SQLite, long reads share one processor anyway (db/sqlite/cpu_share.py).
    """
    if settings.GATEBOOK_SEARCH_PLACES:
        return int(settings.GATEBOOK_SEARCH_PLACES)
    return (
        DEFAULT_SLOTS
        if connection.vendor != "postgresql"
        else max(1, min(DEFAULT_SLOTS, (os.cpu_count() or 1) - 1))
    )


@cache
def _slot_statement(number: int) -> str:
    """Return the statement that tries the slots in turn, if the author runs no other query."""
    tries = " ".join(
        f"WHEN pg_try_advisory_lock(%s, {place}) THEN {place}" for place in range(number)
    )
    return f"SELECT CASE WHEN NOT pg_try_advisory_lock(%s, %s) THEN -2 {tries} ELSE -1 END"


@contextmanager
def hold_slot(author: int, patience_s: float) -> Iterator[bool]:
    """Hold a query slot for `author`; yield False if none is free in `patience_s`."""
    until = time.monotonic() + patience_s
    if not _wait_for_slot(author, until):
        yield False
        return
    began = time.monotonic()
    try:
        processes = connection.vendor == "postgresql"
        with (
            _hold_database_slot(author % 2**31, until)
            if processes
            else nullcontext(True) as is_free
        ):
            began = time.monotonic()  # Waiting for another process does not count as slot time.
            yield is_free
    finally:
        with _changed:
            _running.discard(author)
            _remember(author, began)
            _changed.notify_all()


def has_waiting_queries() -> bool:
    """Return True if a query of this process waits for a slot."""
    return bool(_waiting)


def _wait_for_slot(author: int, until: float) -> bool:
    """Wait for a slot in this process."""
    with _changed:
        _waiting.append(author)
        try:
            if not _is_next(author):
                _release_connection()
            while not _is_next(author):
                remaining_s = until - time.monotonic()
                if remaining_s <= 0:
                    return False
                _changed.wait(remaining_s)
            _running.add(author)
        finally:
            _waiting.remove(author)
            _changed.notify_all()  # There may be a free slot for the next one as well.
    return True


def _is_next(author: int) -> bool:
    """Return True if a waiting query of `author` may start now."""
    if len(_running) >= slot_count():
        return False
    now_s = time.monotonic()
    candidates = [candidate for candidate in _waiting if candidate not in _running]
    return author in candidates and author == min(
        candidates, key=lambda candidate: _recent_slot_time(candidate, now_s)
    )


def _recent_slot_time(author: int, now_s: float) -> float:
    """Return the seconds that queries of `author` held slots, weighted by age."""
    seconds, at = _held.get(author, (0.0, now_s))
    return seconds * math.exp2((at - now_s) / HALF_LIFE_S)


def _remember(author: int, began: float) -> None:
    now_s = time.monotonic()
    _held[author] = (_recent_slot_time(author, now_s) + now_s - began, now_s)
    if len(_held) > MAX_REMEMBERED_AUTHORS:
        del _held[min(_held, key=lambda known_author: _recent_slot_time(known_author, now_s))]


def _release_connection() -> None:
    """Release the connection while waiting."""
    if not connection.in_atomic_block:
        connection.close()


def close_connection() -> None:
    """Close the connection itself: a pool would reuse it with its settings and locks."""
    if connection.connection is not None and not connection.in_atomic_block:
        connection.connection.close()
        connection.close()


@contextmanager
def _hold_database_slot(author: int, until: float) -> Iterator[bool]:
    place = _try_slot(author)
    while place < 0:
        if time.monotonic() >= until:
            yield False
            return
        _release_connection()
        time.sleep(SLOT_POLL_S)
        place = _try_slot(author)
    try:
        yield True
    finally:
        try:
            raw_sql.fetch_rows(_RELEASE, [_PLACE, place, _AUTHOR, author])
        except DatabaseError:
            close_connection()  # The next user of the connection would inherit the slot.


def _try_slot(author: int) -> int:
    """Try to take a slot on this connection; return its number, or a negative number if none."""
    number = slot_count()
    place: int = raw_sql.fetch_rows(
        _slot_statement(number), [_AUTHOR, author, *([_PLACE] * number)]
    )[0][0]
    if place == -1:
        raw_sql.fetch_rows("SELECT pg_advisory_unlock(%s, %s)", [_AUTHOR, author])
    return place
