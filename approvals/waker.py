"""Waking those who wait for people: one thread per process hears of rulings, on a connection outside the pool.

PostgreSQL tells it (LISTEN; `announce` notifies inside the ruling's transaction). On SQLite it asks the file every
2 ms, while somebody waits, whether anything was committed, and then reads the versions of all watched gates at once.
A ruling made in this very process rings without either, as soon as it is committed.
A waiter registers first and reads afterwards, and whoever listens anew wakes everybody: no moment is left in which a
ruling could pass unheard. Nobody is woken for certain knowledge, only to read again.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, connections, transaction

from journal import announcing, beating
from journal.announcing import ALL, CHANNEL

log = structlog.get_logger("gatebook.waker")

LOOK_EVERY_S: Final = 0.002  # on SQLite, and only while somebody waits
PULSE_S: Final = 2.0  # a connection that died without a word is found out after this long
AGAIN_AFTER_S: Final = 0.2  # a lost connection is made anew
BEAT_EVERY_S: Final = 10.0  # on the pages it is late after a minute
SPARE_THREADS: Final = 16  # never parked, so that everything else is answered

T = TypeVar("T")


class Full(Exception):
    """As many wait as may; the caller answers at once and asks the agent to come again."""


class _Waiter:
    """One parked request: what it watches, the versions it has read, and the bell that makes it read again."""

    def __init__(self, gates: Iterable[UUID]) -> None:
        self.gates = frozenset(gates)
        self.read: Mapping[UUID, int] = {}
        self.bell = threading.Event()


def announce(gates: Iterable[UUID]) -> None:
    """Tell every process, when the present transaction commits, that `gates` changed; this one without a way round."""
    changed = set(gates)
    announcing.announce([gate.hex for gate in changed])
    transaction.on_commit(lambda: _waker.ring(changed), robust=True)


def most_waiters() -> int:
    """How many may wait in this process: all threads but a reserve."""
    return max(settings.WEB_THREADS - SPARE_THREADS, settings.WEB_THREADS // 4)


class Waker:
    """The waiters of one process and the thread that wakes them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiters: set[_Waiter] = set()
        self._listed: list[str] | None = []  # what they watch; None since one came or went
        self._draining = False
        self._ended = False
        self._lost = False
        self._has_pulse = False
        self._beat_at = 0.0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen from now on, whether or not somebody waits, and say every few seconds that this process does.

        For processes that serve: it is also how anybody knows that the doors are open.
        """
        self._has_pulse = True
        with self._changed:
            self._begin()

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._waiters)

    def watch(
        self,
        gates: Iterable[UUID],
        read: Callable[[], T | None],
        timeout_s: float,
        versions: Callable[[], Mapping[UUID, int]] = dict,
    ) -> T | None:
        """Return what `read` returns as soon as that is not None, and None after `timeout_s` or when the process ends.

        `read` is called at once, and again whenever one of `gates` may have changed, in the caller's thread and outside
        any transaction; between two calls its database connection is given back. `versions` says what it has read: who
        does not say is also woken for nothing. Raises Full without having read.
        """
        waiter = _Waiter(gates)
        until = time.monotonic() + timeout_s
        self._register(waiter)
        try:
            while True:
                waiter.bell.clear()
                found = read()
                waiter.read = versions()
                left = until - time.monotonic()
                if found is not None or left <= 0 or self._draining:
                    return found
                connection.close()
                waiter.bell.wait(left)
        finally:
            # Not kept for the thread's next request either: of SQLite's, hundreds would hold hundreds of megabytes.
            connection.close()
            with self._changed:
                self._waiters.discard(waiter)
                self._listed = None

    def draining(self) -> bool:
        """Whether nobody may wait any more."""
        return self._draining

    def drain(self) -> None:
        """Let everybody answer now and nobody wait any more: the process is to end."""
        self._draining = True
        self.ring(None)

    def end(self) -> None:
        """Stop the thread and wait until its connection is closed. A later wait starts another."""
        with self._changed:
            thread, self._ended = self._thread, True
            self._changed.notify_all()
        if thread is not None:
            thread.join()
        self._thread, self._ended = None, False

    def _register(self, waiter: _Waiter) -> None:
        with self._changed:
            if len(self._waiters) >= most_waiters():
                raise Full
            self._waiters.add(waiter)
            self._listed = None
            self._changed.notify_all()
            self._begin()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="waker", daemon=True)
            self._thread.start()

    def _beat(self) -> None:
        """Say that this process listens, on a connection that is given back at once."""
        if not self._has_pulse or self._draining or time.monotonic() < self._beat_at:
            return
        self._beat_at = time.monotonic() + BEAT_EVERY_S
        beating.beat("waker")
        connection.close()

    def ring(self, gates: set[UUID] | None) -> None:
        """Wake whoever watches one of `gates`; everybody when None."""
        with self._changed:
            for waiter in self._waiters:
                if gates is None or not gates.isdisjoint(waiter.gates):
                    waiter.bell.set()

    def _ring_who_read_less(self, now: Mapping[UUID, int] | None) -> None:
        """Wake whoever has read another version of a gate than stands there `now`; everybody when None.

        A gate that is not in `now` was not looked at: whoever began to watch it since is woken to read again.
        """
        with self._changed:
            for waiter in self._waiters:
                if now is None or any(gate not in now or waiter.read.get(gate) != now[gate] for gate in waiter.gates):
                    waiter.bell.set()

    def _run(self) -> None:
        listen = self._listen if connection.vendor == "postgresql" else self._look
        while not self._ended:
            try:
                listen()
            except Exception as error:  # whatever it was, those who wait must go on being heard
                if not self._lost:  # a database that is away for minutes is told of once
                    log.warning("waker_lost", error=f"{type(error).__name__}: {error}"[:300])
                self._lost = True
                time.sleep(AGAIN_AFTER_S)

    def _hears(self) -> None:
        """From now on nothing is missed; what was missed before is read by everybody."""
        if self._lost:
            log.warning("waker_back")
        self._lost = False
        self.ring(None)

    def _listen(self) -> None:
        """Hear PostgreSQL until the connection is lost."""
        import psycopg

        parameters = connections["default"].get_connection_params() | {"application_name": "gatebook waker"}
        with psycopg.connect(**parameters, autocommit=True) as own:
            own.execute(f"LISTEN {CHANNEL}")
            self._hears()
            while not self._ended:
                self._beat()
                heard = {notice.payload for notice in own.notifies(timeout=PULSE_S, stop_after=1)}
                if heard:
                    gates = set()
                    for payload in heard - {ALL}:
                        with contextlib.suppress(ValueError):
                            gates.add(UUID(payload))
                    self.ring(None if ALL in heard else gates)
                else:
                    own.execute("SELECT 1")

    def _look(self) -> None:
        """Look at the file as often as LOOK_EVERY_S while somebody waits."""
        own = sqlite3.connect(str(connection.settings_dict["NAME"]), isolation_level=None)
        try:
            own.execute("PRAGMA query_only = ON")
            seen: Any = None
            holds = _holds(own)
            self._hears()
            while not self._ended:
                watched = self._watched()
                self._beat()
                if not watched:
                    continue
                began = time.monotonic()
                (version,) = own.execute("PRAGMA data_version").fetchone()
                if version != seen:
                    seen = version
                    now, held_before = _versions(own, watched), holds
                    holds = _holds(own)
                    self._ring_who_read_less(None if holds != held_before else now)
                # Thousands of watched gates take longer to look through, and must not take a whole processor.
                time.sleep(max(LOOK_EVERY_S, 2 * (time.monotonic() - began)))
        finally:
            own.close()

    def _watched(self) -> list[str]:
        """All gates that somebody watches; waits until there is one, until the next beat, or until the end."""
        with self._changed:
            while not self._waiters and not self._ended:
                if not self._changed.wait(BEAT_EVERY_S if self._has_pulse else None):
                    break
            if self._listed is None:
                self._listed = list({gate.hex for waiter in self._waiters for gate in waiter.gates})
            return self._listed


def _versions(own: sqlite3.Connection, gates: list[str]) -> dict[UUID, int]:
    marks = ", ".join("?" * len(gates))
    found = own.execute(f"SELECT id, version FROM approvals_gate WHERE id IN ({marks})", gates).fetchall()
    return {UUID(gate): version for gate, version in found}


def _holds(own: sqlite3.Connection) -> Any:
    return own.execute("SELECT group_concat(opened_position) FROM ledger_hold WHERE lifted_at_us IS NULL").fetchone()


_waker = Waker()
watch = _waker.watch
drain = _waker.drain
draining = _waker.draining
start = _waker.start
end = _waker.end
