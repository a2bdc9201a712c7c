"""A one-line progress bar for terminals."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

_REDRAW_S = 0.1
_NARROWEST = 10


class Progress:
    """Shows how many of `total` steps are done. Writes only to terminals."""

    def __init__(self, stream: TextIO, label: str, total: int) -> None:
        self._stream = stream
        self._label = label
        self._total = max(total, 1)
        self._done = 0
        self._drawn_at = 0.0
        self._shown = stream.isatty()

    def advance(self, steps: int = 1) -> None:
        """Count `steps` more as done."""
        self._done = min(self._done + steps, self._total)
        now = time.monotonic()
        if self._shown and (now - self._drawn_at >= _REDRAW_S or self._done == self._total):
            self._drawn_at = now
            self._draw()

    def close(self) -> None:
        """Clear the line."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _draw(self) -> None:
        columns = shutil.get_terminal_size().columns
        count = f" {self._done:,}/{self._total:,}"
        label = self._label[-max(columns - len(count) - _NARROWEST - 4, 0) :] if columns else ""
        width = max(columns - len(label) - len(count) - 4, _NARROWEST)
        filled = width * self._done // self._total
        self._stream.write(f"\r\x1b[K{label} [{'█' * filled}{'·' * (width - filled)}]{count}")
        self._stream.flush()
