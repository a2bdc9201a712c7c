"""Fair queue of writers: SQLite allows one at a time, in no order of waiters.

By itself SQLite polls: a person's form waited seconds behind importers that kept overtaking it.
Here writers go first come, first served, except that people's requests, which are short, go before
those of agents. One queue serves one database file in one process.

SQLite's own lock and busy timeout separate processes, but a process with a queue takes that lock
again the moment it is free, and one that polls hardly ever finds it free. So the process that asks
for SQLite's lock holds a lock file until it has it, and the others wait with their question.
"""

import fcntl
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

# After so many people in a row a waiting agent writes, so that nobody starves.
PEOPLE_IN_A_ROW = 3
# For so long a process waits for another that asks for SQLite's lock. It may be stopped, and what
# keeps the database intact is SQLite's lock alone.
_WAIT_FOR_PROCESS_S: Final = 1.0
_POLL_S: Final = 0.001

log = structlog.get_logger("gatebook.sqlite")

_asks_for = threading.local()


@contextmanager
def prioritize_person() -> Iterator[None]:
    """Within this context the thread writes for a person, before agents."""
    _asks_for.person = True
    try:
        yield
    finally:
        _asks_for.person = False


class BlockedError(Exception):
    """The turn did not come in time, or this thread would wait for itself."""


@dataclass(eq=False)
class QueuePlace:
    """One connection's place in a queue of writers, from `take` to `leave`. Reusable."""

    queue: "WriterQueue"
    turn: threading.Event = field(default_factory=threading.Event)
    thread: int = 0

    @property
    def held(self) -> bool:
        """Return whether this place has the turn now."""
        return self.queue.holder is self

    def take(self, timeout_s: float) -> None:
        """Wait for the turn at most `timeout_s` seconds; no-op when it is held already.

        Raises BlockedError on timeout, and at once when this thread has the turn by another place.
        """
        if not self.held:
            self.queue.take(self, timeout_s)

    def leave(self) -> None:
        """Pass the turn to the next waiter, from any thread; no-op when not held."""
        if self.held:
            self.queue.leave(self)


class WriterQueue:
    """The current writer and the waiting ones, in their order of arrival."""

    def __init__(self, lock_file: "LockFile | None" = None) -> None:
        self.lock_file = lock_file
        # Reentrant, because a collected connection releases its turn, and the collector may run at
        # any allocation, also within this mutex. So nothing is allocated there between a check and
        # what follows.
        self.mutex = threading.RLock()
        self.holder: QueuePlace | None = None
        self.waiting: deque[QueuePlace] = deque()
        self.people: deque[QueuePlace] = deque()
        self.people_in_a_row = 0

    def take(self, place: QueuePlace, timeout_s: float) -> None:
        """See Place.take."""
        place.thread = threading.get_ident()
        place.turn.clear()
        line = self.people if getattr(_asks_for, "person", False) else self.waiting
        with self.mutex:
            if self.holder is None:
                self.holder = place
                return
            if self.holder.thread == place.thread:
                raise BlockedError(
                    "this thread is already writing through another connection to the same database"
                )
            line.append(place)
        if place.turn.wait(timeout_s):
            return
        with self.mutex:
            # The turn may have come after the timeout. Then it is ours and must not be lost.
            if self.holder is not place:
                line.remove(place)
                raise BlockedError(f"waited {timeout_s:g} s for the turn to write")

    def leave(self, place: QueuePlace) -> None:
        """See Place.leave."""
        with self.mutex:
            if self.holder is not place:
                return
            self.holder = self._next()
            if self.holder is not None:
                self.holder.turn.set()

    def _next(self) -> QueuePlace | None:
        """Return the next writer. Call with the mutex held."""
        if self.people and (self.people_in_a_row < PEOPLE_IN_A_ROW or not self.waiting):
            self.people_in_a_row += 1
            return self.people.popleft()
        self.people_in_a_row = 0
        return self.waiting.popleft() if self.waiting else None


class LockFile:
    """Lets one process after the other ask for SQLite's lock. Used by the writer whose turn it is.

    It belongs to the process, which loses it when it ends. If the file cannot be used, the process
    asks at once: SQLite's lock decides, as it does for other programs.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._file: int | None = None
        self._held = self._is_logged = False

    def take(self) -> None:
        """Wait until no other process asks, at most _WAIT_FOR_PROCESS_S."""
        try:
            file = self._open()
            ends_s = time.monotonic() + _WAIT_FOR_PROCESS_S
            while not self._held:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._held = True
                except BlockingIOError:
                    if time.monotonic() > ends_s:
                        return
                    time.sleep(_POLL_S)
        except OSError as error:
            if not self._is_logged:
                self._is_logged = True
                log.warning("lock_file_unusable", file=f"{self._database}-queue", error=str(error))

    def _open(self) -> int:
        """Return the open file, with the owner and the mode of the database, as SQLite's own."""
        if self._file is None:
            database = Path(self._database).stat()
            file = os.open(f"{self._database}-queue", os.O_RDWR | os.O_CREAT, 0o600)
            self._file, own = file, os.fstat(file)
            if own.st_uid == os.geteuid() != database.st_uid:  # root, for the service
                os.fchown(file, database.st_uid, database.st_gid)
            if own.st_uid == os.geteuid():
                os.fchmod(file, stat.S_IMODE(database.st_mode))
        return self._file

    def release(self) -> None:
        """Let other processes ask; no-op when not held."""
        if self._held and self._file is not None:
            self._held = False
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file. A lock lasts until every process that inherited the file closed it."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._held = None, False


_queues: dict[str, WriterQueue] = {}
_queues_mutex = threading.Lock()


def get_writer_queue(name: str) -> WriterQueue:
    """Return this process's queue for a database file; spellings of a path share it."""
    in_memory = name.startswith("file:") or name == ":memory:"
    key = name if in_memory else os.path.realpath(name)
    with _queues_mutex:
        if key not in _queues:
            _queues[key] = WriterQueue(None if in_memory else LockFile(key))
        return _queues[key]


def _forget_after_fork() -> None:
    # Threads do not survive a fork, so their turns and mutexes are never released in the child.
    global _queues_mutex
    _queues_mutex = threading.Lock()
    for queue in _queues.values():
        if queue.lock_file is not None:
            # The parent's lock would last as long as the child keeps its file open.
            queue.lock_file.close()
    _queues.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
