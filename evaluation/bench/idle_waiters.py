"""Idle waiters: agents with a pending long-poll request, which cost the benchmark no CPU."""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

IDLE_WAIT_S: Final = 50  # the longest; the others differ, so that they do not all retry at once


class IdleWaiters:
    """One waiting agent for each of `gates` until the block ends. An answered agent retries."""

    def __init__(self, port: int, token: str, gates: Sequence[str]) -> None:
        self._port, self._token, self._gates = port, token, gates
        self._selector = selectors.DefaultSelector()
        self._connections: list[socket.socket] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._retry_answered, daemon=True)

    def __enter__(self) -> "IdleWaiters":
        for number, gate in enumerate(self._gates):
            request = self._build_request(gate, IDLE_WAIT_S - number % (IDLE_WAIT_S // 2))
            connection = socket.create_connection(("127.0.0.1", self._port))
            self._connections.append(connection)
            connection.sendall(request)
            self._selector.register(connection, selectors.EVENT_READ, (connection, request))
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._stop()
        self._selector.close()
        for connection in self._connections:
            connection.close()

    def end(self, release: Callable[[], object]) -> None:
        """Stop retrying, call `release`, which ends all waits, and read all answers."""
        self._stop()
        release()
        until = time.monotonic() + IDLE_WAIT_S
        while self._selector.get_map() and time.monotonic() < until:
            for connection, _ in self._read_answers():
                self._selector.unregister(connection)

    def _stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _retry_answered(self) -> None:
        while not self._ending.is_set():
            for connection, request in self._read_answers():
                connection.sendall(request)

    def _read_answers(self) -> list[tuple[socket.socket, bytes]]:
        answered = [key.data for key, _ in self._selector.select(0.2)]
        for connection, _ in answered:
            connection.recv(65536)
        return answered

    def _build_request(self, gate: str, wait_s: int) -> bytes:
        return (
            f"GET /api/v1/gates/{gate}?wait={wait_s}&since=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {self._token}\r\n\r\n"
        ).encode()
