"""Turns of queries: few run at once in the whole house, each of another author; others wait without a connection.

Twenty authors of the worst queries then cost those who write no more than so few do, and one author of them leaves a
place to everybody else. A place that comes free goes to the author whose queries have held places for the shortest
time of late, as this process knows: who asks for the first time, or little, does not stand behind twenty who ask on.

In a process its threads wait for each other; between the processes that serve one PostgreSQL, advisory locks on the
connection that is about to search say who has a place, and fall with it. How those that run on SQLite divide the
processors is told in slices.py.
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

from journal import sql

PLACES: Final = 2  # at most, unless settings.GATEBOOK_SEARCH_PLACES says otherwise
HALVED_S: Final = 60.0  # in so long half of what an author has held is forgotten
REMEMBERED: Final = 1_000  # authors
LOOK_S: Final = 0.02  # between two looks for a place that another process may have given back
_PLACE, _AUTHOR = 0x7475, 0x6175  # keep these advisory locks apart from others'
_GIVE_BACK: Final = "SELECT pg_advisory_unlock(%s, %s), pg_advisory_unlock(%s, %s)"

_running: set[int] = set()  # authors of the queries that run in this process
_waiting: Final[list[int]] = []  # and of those that wait, in the order of asking
_held: Final[dict[int, tuple[float, float]]] = {}  # author -> (seconds that theirs held places, when that was so)
_changed = threading.Condition()


def places() -> int:
    """How many queries run at once: on PostgreSQL as many as leave a processor to those who write.

    On SQLite long reads share one processor anyway (slices.py).
    """
    if settings.GATEBOOK_SEARCH_PLACES:
        return int(settings.GATEBOOK_SEARCH_PLACES)
    return PLACES if connection.vendor != "postgresql" else max(1, min(PLACES, (os.cpu_count() or 1) - 1))


@cache
def _taking(number: int) -> str:
    """The statement that looks for one of so many places in turn, and only for an author of whom nothing runs."""
    tries = " ".join(f"WHEN pg_try_advisory_lock(%s, {place}) THEN {place}" for place in range(number))
    return f"SELECT CASE WHEN NOT pg_try_advisory_lock(%s, %s) THEN -2 {tries} ELSE -1 END"


@contextmanager
def taken(author: int, patience_s: float) -> Iterator[bool]:
    """Take a place for a query of `author` (any whole number). Yields False when none came free within `patience_s`."""
    until = time.monotonic() + patience_s
    if not _take(author, until):
        yield False
        return
    began = time.monotonic()
    try:
        processes = connection.vendor == "postgresql"
        with _among_processes(author % 2**31, until) if processes else nullcontext(True) as found:
            began = time.monotonic()  # to wait for another process is not to hold a place
            yield found
    finally:
        with _changed:
            _running.discard(author)
            _remember(author, began)
            _changed.notify_all()


def wanted() -> bool:
    """Whether a query of this process waits for a place."""
    return bool(_waiting)


def _take(author: int, until: float) -> bool:
    """Wait for a place in this process."""
    with _changed:
        _waiting.append(author)
        try:
            if not _is_next(author):
                _let_go()
            while not _is_next(author):
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return False
                _changed.wait(left_s)
            _running.add(author)
        finally:
            _waiting.remove(author)
            _changed.notify_all()  # there may be a place for the next as well
    return True


def _is_next(author: int) -> bool:
    """Whether a query of `author`, who waits, may begin now."""
    if len(_running) >= places():
        return False
    now = time.monotonic()
    may = [one for one in _waiting if one not in _running]
    return author in may and author == min(may, key=lambda one: _held_of(one, now))


def _held_of(author: int, now: float) -> float:
    """Seconds that queries of `author` have held places, the longer ago the less."""
    seconds, at = _held.get(author, (0.0, now))
    return seconds * math.exp2((at - now) / HALVED_S)


def _remember(author: int, began: float) -> None:
    now = time.monotonic()
    _held[author] = (_held_of(author, now) + now - began, now)
    if len(_held) > REMEMBERED:
        del _held[min(_held, key=lambda one: _held_of(one, now))]


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
    number = places()
    place: int = sql.rows(_taking(number), [_AUTHOR, author, *([_PLACE] * number)])[0][0]
    if place == -1:
        sql.rows("SELECT pg_advisory_unlock(%s, %s)", [_AUTHOR, author])
    return place
