"""A fair queue of writers: SQLite lets one connection write at a time and keeps no order among those who wait.

Left to itself SQLite polls: a person's form waited seconds behind importers that kept stepping in front of it.
Here the next to write is the one who asked first, and a person's request goes before those of agents: it is short, and
somebody watches it. One queue stands for one database file in one process; other
processes are kept apart by SQLite's own lock and its busy timeout.
"""

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

# So many people in a row, then an agent that waits: nobody starves, whoever comes in crowds.
PEOPLE_IN_A_ROW = 3

_asks_for = threading.local()


@contextmanager
def for_a_person() -> Iterator[None]:
    """Within this context the thread asks for a person: its writes go before those of agents."""
    _asks_for.person = True
    try:
        yield
    finally:
        _asks_for.person = False


class BlockedError(Exception):
    """The turn did not come: in time, or because waiting for oneself would never end."""


@dataclass(eq=False)
class Place:
    """One connection's place in a queue of writers. Held from `take` to `leave`; may be taken again afterwards."""

    queue: "WriterQueue"
    turn: threading.Event = field(default_factory=threading.Event)
    thread: int = 0

    @property
    def held(self) -> bool:
        """Whether this place holds the turn now."""
        return self.queue.holder is self

    def take(self, timeout_s: float) -> None:
        """Wait for the turn, first come first served, at most `timeout_s` seconds; no-op when it is held already.

        Raises BlockedError when the time is over, and at once when the same thread holds the turn by another place.
        """
        if not self.held:
            self.queue.take(self, timeout_s)

    def leave(self) -> None:
        """Give the turn to whoever has waited longest; no-op when it is not held. Any thread may call it."""
        if self.held:
            self.queue.leave(self)


class WriterQueue:
    """Who writes now and who waits, in the order of asking."""

    def __init__(self) -> None:
        # Whoever has it may come again: a connection that is collected gives its turn back, and the collector runs at
        # any allocation, within this mutex too. So nothing is allocated there between a look and what follows from it.
        self.mutex = threading.RLock()
        self.holder: Place | None = None
        self.waiting: deque[Place] = deque()
        self.people: deque[Place] = deque()
        self.people_in_a_row = 0

    def take(self, place: Place, timeout_s: float) -> None:
        """See Place.take."""
        place.thread = threading.get_ident()
        place.turn.clear()
        line = self.people if getattr(_asks_for, "person", False) else self.waiting
        with self.mutex:
            if self.holder is None:
                self.holder = place
                return
            if self.holder.thread == place.thread:
                raise BlockedError("this thread is already writing through another connection to the same database")
            line.append(place)
        if place.turn.wait(timeout_s):
            return
        with self.mutex:
            # The turn may have come between the end of the wait and here: then it is ours and must not be lost.
            if self.holder is not place:
                line.remove(place)
                raise BlockedError(f"waited {timeout_s:g} s for the turn to write")

    def leave(self, place: Place) -> None:
        """See Place.leave."""
        with self.mutex:
            if self.holder is not place:
                return
            self.holder = self._next()
            if self.holder is not None:
                self.holder.turn.set()

    def _next(self) -> Place | None:
        """Who writes next; call with the mutex held."""
        if self.people and (self.people_in_a_row < PEOPLE_IN_A_ROW or not self.waiting):
            self.people_in_a_row += 1
            return self.people.popleft()
        self.people_in_a_row = 0
        return self.waiting.popleft() if self.waiting else None


_queues: dict[str, WriterQueue] = {}
_queues_mutex = threading.Lock()


def for_database(name: str) -> WriterQueue:
    """Return this process's one queue for the database file `name`; different spellings of a path share it."""
    key = name if name.startswith("file:") or name == ":memory:" else os.path.realpath(name)
    with _queues_mutex:
        return _queues.setdefault(key, WriterQueue())


def _forget_after_fork() -> None:
    # Threads do not survive a fork: whoever held a turn or a mutex will never give it back in the child.
    global _queues_mutex
    _queues_mutex = threading.Lock()
    _queues.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
