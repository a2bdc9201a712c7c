"""The injected clock: a file of eight bytes says by how much the server under trial is ahead of
this machine.

Nobody sleeps. Whoever is told to wait moves the clock; the server reads it at every look at the
time (`inside`).
"""

import mmap
import struct
import time
from pathlib import Path


class Clock:
    """Time as the server under trial tells it, in microseconds since the epoch. It only ever moves
    forward."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), 8)

    def now_us(self) -> int:
        """The time there now."""
        return time.time_ns() // 1_000 + self._ahead_us()

    def until(self, moment_us: int) -> None:
        """Let time pass until a little after `moment_us`; nothing where that is past."""
        missing = moment_us + 1_000 - self.now_us()
        if missing > 0:
            self._shared[:] = struct.pack("<q", self._ahead_us() + missing)

    def _ahead_us(self) -> int:
        return int(struct.unpack("<q", self._shared[:])[0])
