"""Tells the application that its process is about to end, so that nobody is kept waiting by it.

The web server answers SIGTERM by waiting for the requests that are under way, and kills a worker that takes too long.
It sets its own handlers after the application was loaded; the wakeup file descriptor of the interpreter stays.
"""

import signal
import socket
import threading
from collections.abc import Callable

ENDS = (signal.SIGTERM, signal.SIGINT)


def before_end(callback: Callable[[], None]) -> None:
    """Call `callback`, in a thread of its own, at the first SIGTERM or SIGINT. To be called in the main thread."""
    told, tell = socket.socketpair()
    tell.setblocking(False)
    signal.set_wakeup_fd(tell.detach(), warn_on_full_buffer=False)

    def hear() -> None:
        while number := told.recv(1):
            if number[0] in ENDS:
                callback()

    threading.Thread(target=hear, name="before-end", daemon=True).start()
