"""Agents that only wait: each holds a connection and a request that nobody answers, and costs the
benchmark nothing."""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

IDLE_WAIT_S: Final = (
    50  # the longest; each waits for another time, so that they do not all ask again at once
)


class Herd:
    """One waiting agent for each of `gates`, as long as the block lasts; whoever is answered asks
    again."""

    def __init__(self, port: int, token: str, gates: Sequence[str]) -> None:
        self._port, self._token, self._gates = port, token, gates
        self._selector = selectors.DefaultSelector()
        self._lines: list[socket.socket] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def __enter__(self) -> "Herd":
        for number, gate in enumerate(self._gates):
            request = self._request(gate, IDLE_WAIT_S - number % (IDLE_WAIT_S // 2))
            line = socket.create_connection(("127.0.0.1", self._port))
            self._lines.append(line)
            line.sendall(request)
            self._selector.register(line, selectors.EVENT_READ, (line, request))
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._stop()
        self._selector.close()
        for line in self._lines:
            line.close()

    def end(self, release: Callable[[], object]) -> None:
        """Ask no more, let `release` make the server answer everybody, and hear all the answers."""
        self._stop()
        release()
        until = time.monotonic() + IDLE_WAIT_S
        while self._selector.get_map() and time.monotonic() < until:
            for line, _ in self._answered():
                self._selector.unregister(line)

    def _stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _go_on(self) -> None:
        while not self._ending.is_set():
            for line, request in self._answered():
                line.sendall(request)

    def _answered(self) -> list[tuple[socket.socket, bytes]]:
        found = [key.data for key, _ in self._selector.select(0.2)]
        for line, _ in found:
            line.recv(65536)
        return found

    def _request(self, gate: str, wait_s: int) -> bytes:
        return (
            f"GET /api/v1/gates/{gate}?wait={wait_s}&since=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {self._token}\r\n\r\n"
        ).encode()
