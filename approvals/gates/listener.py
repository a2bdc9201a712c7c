"""Gate listener: a thread that wakes long-polling requests of its process.

It uses its own connection outside the pool. On PostgreSQL it runs LISTEN; `announce_gates` notifies
in the transaction of the vote. On SQLite it polls the file's data_version every 2 ms while requests
wait, then reads the versions of all watched gates at once. A vote of the same process wakes
directly on commit. A waiter registers before it reads, and every new connection wakes all waiters,
so no change is missed. A wake-up only means: read again.
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

from db import jobs, notify
from db.notify import ALL_LISTENERS, GATE_CHANNEL

log = structlog.get_logger("gatebook.gate_listener")

POLL_INTERVAL_S: Final = 0.002  # on SQLite, and only while requests wait
CONNECTION_CHECK_S: Final = 2.0  # a silently dead connection is detected after this time
RECONNECT_AFTER_S: Final = 0.2  # before reconnecting
HEARTBEAT_INTERVAL_S: Final = 10.0  # pages show the listener as late after one minute
RESERVED_THREADS: Final = 16  # threads that never wait, to serve other requests

T = TypeVar("T")


class TooManyWaiters(Exception):
    """Too many requests wait; the caller answers immediately with a retry hint."""


class _Waiter:
    """A waiting request: watched gates, versions it has read, event that wakes it."""

    def __init__(self, gates: Iterable[UUID]) -> None:
        self.gates = frozenset(gates)
        self.read: Mapping[UUID, int] = {}
        self.bell = threading.Event()


def announce_gates(gates: Iterable[UUID]) -> None:
    """Notify all processes at commit that `gates` changed; this one directly."""
    changed = set(gates)
    notify.notify_listeners([gate.hex for gate in changed])
    transaction.on_commit(lambda: _listener.ring(changed), robust=True)


def max_waiters() -> int:
    """Return how many requests may wait in this process: all threads but a reserve."""
    return max(settings.WEB_THREADS - RESERVED_THREADS, settings.WEB_THREADS // 4)


class GateListener:
    """Waiting requests of one process and the thread that wakes them."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiters: set[_Waiter] = set()
        self._watched_cache: (
            list[str] | None
        ) = []  # watched gates; None after a waiter came or went
        self._draining = False
        self._is_stopping = False
        self._is_disconnected = False
        self._has_heartbeat = False
        self._next_heartbeat_at = 0.0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start listening, even without waiters, and record heartbeats every HEARTBEAT_INTERVAL_S.

        For processes that serve HTTP: the heartbeat also shows that the web server is up.
        """
        self._has_heartbeat = True
        with self._condition:
            self._start_thread()

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._waiters)

    def watch(
        self,
        gates: Iterable[UUID],
        read: Callable[[], T | None],
        timeout_s: float,
        versions: Callable[[], Mapping[UUID, int]] = dict,
    ) -> T | None:
        """Return the first result of `read` that is not None; None on timeout or shutdown.

        Calls `read` immediately and after each possible change of `gates`, in the caller's thread,
        outside any transaction; releases its database connection between calls. `versions` returns
        the gate versions that `read` saw; without them the caller is also woken needlessly. Raises
        TooManyWaiters without reading.
        """
        waiter = _Waiter(gates)
        until = time.monotonic() + timeout_s
        self._add_waiter(waiter)
        try:
            while True:
                waiter.bell.clear()
                result = read()
                waiter.read = versions()
                left = until - time.monotonic()
                if result is not None or left <= 0 or self._draining:
                    return result
                connection.close()
                waiter.bell.wait(left)
        finally:
            # Hundreds of idle SQLite connections would use hundreds of megabytes.
            connection.close()
            with self._condition:
                self._waiters.discard(waiter)
                self._watched_cache = None

    def draining(self) -> bool:
        """Return True if no request may wait because the process is shutting down."""
        return self._draining

    def drain(self) -> None:
        """Wake all waiters and refuse new ones: the process is shutting down."""
        self._draining = True
        self.ring(None)

    def end(self) -> None:
        """Stop the thread and close its connection. A later wait restarts it."""
        with self._condition:
            thread, self._is_stopping = self._thread, True
            self._condition.notify_all()
        if thread is not None:
            thread.join()
        self._thread, self._is_stopping = None, False

    def _add_waiter(self, waiter: _Waiter) -> None:
        with self._condition:
            if len(self._waiters) >= max_waiters():
                raise TooManyWaiters
            self._waiters.add(waiter)
            self._watched_cache = None
            self._condition.notify_all()
            self._start_thread()

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gate_listener", daemon=True)
            self._thread.start()

    def _record_heartbeat(self) -> None:
        """Record a heartbeat, on a connection that is released immediately."""
        if not self._has_heartbeat or self._draining or time.monotonic() < self._next_heartbeat_at:
            return
        self._next_heartbeat_at = time.monotonic() + HEARTBEAT_INTERVAL_S
        jobs.send_job_heartbeat("gate_listener")
        connection.close()

    def ring(self, gates: set[UUID] | None) -> None:
        """Wake the waiters of `gates`; all waiters for None."""
        with self._condition:
            for waiter in self._waiters:
                if gates is None or not gates.isdisjoint(waiter.gates):
                    waiter.bell.set()

    def _wake_outdated(self, now: Mapping[UUID, int] | None) -> None:
        """Wake waiters that read another version of a gate than in `now`; all for None.

        A gate missing in `now` was not read: its waiters registered since and are woken.
        """
        with self._condition:
            for waiter in self._waiters:
                if now is None or any(
                    gate not in now or waiter.read.get(gate) != now[gate] for gate in waiter.gates
                ):
                    waiter.bell.set()

    def _run(self) -> None:
        listen = self._listen_postgres if connection.vendor == "postgresql" else self._poll_sqlite
        while not self._is_stopping:
            try:
                listen()
            except Exception as error:  # the thread must survive any error
                if not self._is_disconnected:  # log an outage once
                    reason = f"{type(error).__name__}: {error}"[:300]
                    log.warning("gate_listener_lost", error=reason)
                self._is_disconnected = True
                time.sleep(RECONNECT_AFTER_S)

    def _mark_connected(self) -> None:
        """Mark the connection as up and wake all waiters to read what they missed."""
        if self._is_disconnected:
            log.warning("gate_listener_back")
        self._is_disconnected = False
        self.ring(None)

    def _listen_postgres(self) -> None:
        """Receive PostgreSQL notifications until the connection is lost."""
        import psycopg

        parameters = connections["default"].get_connection_params() | {
            "application_name": "gatebook gate listener"
        }
        with psycopg.connect(**parameters, autocommit=True) as own:
            own.execute(f"LISTEN {GATE_CHANNEL}")
            self._mark_connected()
            while not self._is_stopping:
                self._record_heartbeat()
                payloads = {
                    notify.payload
                    for notify in own.notifies(timeout=CONNECTION_CHECK_S, stop_after=1)
                }
                if payloads:
                    gates = set()
                    for payload in payloads - {ALL_LISTENERS}:
                        with contextlib.suppress(ValueError):
                            gates.add(UUID(payload))
                    self.ring(None if ALL_LISTENERS in payloads else gates)
                else:
                    own.execute("SELECT 1")

    def _poll_sqlite(self) -> None:
        """Poll the SQLite file every POLL_INTERVAL_S while requests wait."""
        own = sqlite3.connect(str(connection.settings_dict["NAME"]), isolation_level=None)
        try:
            own.execute("PRAGMA query_only = ON")
            seen: Any = None
            stops = _load_stops(own)
            self._mark_connected()
            while not self._is_stopping:
                watched = self._watched_gates()
                self._record_heartbeat()
                if not watched:
                    continue
                began = time.monotonic()
                (version,) = own.execute("PRAGMA data_version").fetchone()
                if version != seen:
                    seen = version
                    now, stops_before = _load_versions(own, watched), stops
                    stops = _load_stops(own)
                    self._wake_outdated(None if stops != stops_before else now)
                # Thousands of watched gates take longer to read and must not use a full CPU core.
                time.sleep(max(POLL_INTERVAL_S, 2 * (time.monotonic() - began)))
        finally:
            own.close()

    def _watched_gates(self) -> list[str]:
        """Return all watched gates; waits for one, for the next heartbeat, or for the end."""
        with self._condition:
            while not self._waiters and not self._is_stopping:
                if not self._condition.wait(HEARTBEAT_INTERVAL_S if self._has_heartbeat else None):
                    break
            if self._watched_cache is None:
                self._watched_cache = list(
                    {gate.hex for waiter in self._waiters for gate in waiter.gates}
                )
            return self._watched_cache


def _load_versions(own: sqlite3.Connection, gates: list[str]) -> dict[UUID, int]:
    placeholders = ", ".join("?" * len(gates))
    rows = own.execute(
        f"SELECT id, version FROM approvals_gate WHERE id IN ({placeholders})", gates
    ).fetchall()
    return {UUID(gate): version for gate, version in rows}


def _load_stops(own: sqlite3.Connection) -> Any:
    return own.execute(
        "SELECT group_concat(opened_position) FROM ledger_stop WHERE lifted_at_us IS NULL"
    ).fetchone()


_listener = GateListener()
watch_gates = _listener.watch
drain_waiters = _listener.drain
is_draining = _listener.draining
start_listener = _listener.start
