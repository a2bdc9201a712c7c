"""The injected clock: an eight-byte file with the offset of the server under trial.

No process sleeps. A process that has to wait moves the clock, and the server reads the offset
each time it reads the time (`server_hooks`).
"""

import mmap
import struct
import time
from pathlib import Path


class Clock:
    """The clock of the server under trial, in microseconds since the epoch. It only moves forward."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), 8)

    def now_us(self) -> int:
        """Return the current time of the server."""
        return time.time_ns() // 1_000 + self._ahead_us()

    def advance_to(self, moment_us: int) -> None:
        """Advance the clock to a little after `moment_us`, unless that is past."""
        missing = moment_us + 1_000 - self.now_us()
        if missing > 0:
            self._shared[:] = struct.pack("<q", self._ahead_us() + missing)

    def _ahead_us(self) -> int:
        return int(struct.unpack("<q", self._shared[:])[0])
