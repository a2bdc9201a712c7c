"""Shutdown callbacks, so that no request waits on when the process ends.

On SIGTERM the web server waits for running requests, and is killed when that takes too long.
"""

import threading
from collections.abc import Callable

_callbacks: list[Callable[[], None]] = []


def register_shutdown_callback(callback: Callable[[], None]) -> None:
    """Register `callback` to run in its own thread when the web server begins to stop."""
    _callbacks.append(callback)


def run_shutdown_callbacks() -> None:
    """Run the registered callbacks. Returns at once."""
    for callback in _callbacks:
        threading.Thread(target=callback, name="before-end", daemon=True).start()
