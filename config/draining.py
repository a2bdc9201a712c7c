"""Announces to the application that its process is about to end, so that no request goes on waiting.

The web server answers SIGTERM by waiting for the requests that are under way, and is killed when it takes too long.
"""

import threading
from collections.abc import Callable

_callbacks: list[Callable[[], None]] = []


def before_end(callback: Callable[[], None]) -> None:
    """Call `callback`, in a thread of its own, when the web server begins to stop."""
    _callbacks.append(callback)


def announce_end() -> None:
    """Call what was registered. Returns at once."""
    for callback in _callbacks:
        threading.Thread(target=callback, name="before-end", daemon=True).start()
