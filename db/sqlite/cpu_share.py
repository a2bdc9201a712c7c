"""Share one processor among all long reads of a process on SQLite, in slices of a few ms.

SQLite works in the threads of the web server. Two long queries used both processors of a small
machine: writers waited for a processor at each statement, and a batch took 2.5 times as long, with
two searches as with twenty. Sharing one processor leaves the others free. While somebody writes,
reads use one third of it (time_limit.BACKOFF_FACTOR), because the job worker must read what was
written. A read yields in SQLite's progress handler (time_limit.SQLITE_STEPS); shorter reads share
nothing. The read that has worked least continues first, so short reads do not wait for long ones.
"""

import threading
from typing import Final


class CpuShare:
    """The processor share of one read. Belongs to the reading thread."""

    def __init__(self) -> None:
        self.slices = 0  # Number of slices used.
        self._come = threading.Event()

    def again(self, patience_s: float) -> bool:
        """Yield the processor and wait for it; return False if it is not free in `patience_s`."""
        with _mutex:
            self.slices += 1
            self._come.clear()
            _waiting.append(self)
            if _current[0] in (None, self):
                _wake_next()
        if self._come.wait(patience_s):
            return True
        with _mutex:
            if not self._come.is_set():
                _waiting.remove(self)
            return self._come.is_set()

    def leave(self) -> None:
        """Give up the processor, if it is held."""
        with _mutex:
            if _current[0] is self:
                _wake_next()


def _wake_next() -> None:
    """Give the processor to the read with the fewest slices. Needs the mutex."""
    following = min(_waiting, key=lambda share: share.slices, default=None)
    _current[0] = following
    if following is not None:
        _waiting.remove(following)
        following._come.set()


_mutex: Final = threading.Lock()
_current: Final[list[CpuShare | None]] = [None]
_waiting: Final[list[CpuShare]] = []  # In order of arrival.
