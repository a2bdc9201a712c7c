"""Slices of a processor: on SQLite all long reads of the process share one, and work by turns of a few milliseconds.

SQLite works in the threads of the web server itself. Two queries of seconds took both processors of a small machine:
whoever wrote beside them stood in line for a processor at each statement, and a batch took two and a half times as
long, with two who search as with twenty. Sharing one, they leave the others to everybody else; and while somebody
writes they take a third of it (patience.REST), for the job worker has what was written to read.

A read comes here when SQLite looks up from its work (patience.STEPS); what ends before shares nothing. Whoever has
worked least goes next, so that what is short does not wait for what is long.
"""

import threading
from typing import Final


class Share:
    """What one read has of the processor. Belongs to the thread that reads."""

    def __init__(self) -> None:
        self.slices = 0  # that it has worked
        self._come = threading.Event()

    def again(self, patience_s: float) -> bool:
        """Let go of the processor and wait for it again. False when it did not come within `patience_s`."""
        with _mutex:
            self.slices += 1
            self._come.clear()
            _waiting.append(self)
            if _at_work[0] in (None, self):
                _hand_on()
        if self._come.wait(patience_s):
            return True
        with _mutex:
            if not self._come.is_set():
                _waiting.remove(self)
            return self._come.is_set()

    def leave(self) -> None:
        """Let go of the processor for good; nothing when it is not held."""
        with _mutex:
            if _at_work[0] is self:
                _hand_on()


def _hand_on() -> None:
    """Give the processor to whoever has worked least, of those the first who asked. Call with the mutex held."""
    following = min(_waiting, key=lambda share: share.slices, default=None)
    _at_work[0] = following
    if following is not None:
        _waiting.remove(following)
        following._come.set()


_mutex: Final = threading.Lock()
_at_work: Final[list[Share | None]] = [None]
_waiting: Final[list[Share]] = []  # in the order of asking
