"""Clients in their own processes, so that their CPU time is not counted as the server's.

Each has one persistent connection (http.client) or sixteen (a selector over raw sockets) and reads
only the needed part of an answer. They are forked, start together at a barrier, and have a time
limit.
"""

import http.client
import json
import multiprocessing
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from evaluation.bench.workload import Batch

_FORK: Final = multiprocessing.get_context("fork")
LONGEST_S: Final = 300
COMMANDS: Final = ("plan", "dispatch", "acknowledge")


@dataclass
class Timings:
    """Timings of one measurement: its duration, and latencies in seconds by kind of request."""

    wall_s: float
    latencies: dict[str, list[float]]
    answers: dict[int, int] = field(default_factory=dict)  # HTTP status -> how many

    @property
    def all(self) -> list[float]:
        """All latencies of all kinds of requests."""
        return [value for values in self.latencies.values() for value in values]


Work: TypeAlias = Callable[[], Timings]


def run_together(works: Sequence[Work]) -> Timings:
    """Run each of `works` in its own process, all at once, and merge their timings.

    Raises RuntimeError if one fails or takes longer than LONGEST_S.
    """
    barrier = _FORK.Barrier(len(works) + 1)
    pipes = [_FORK.Pipe(duplex=False) for _ in works]
    processes = [
        _FORK.Process(target=_body, args=(work, barrier, pipe[1]), daemon=True)
        for work, pipe in zip(works, pipes, strict=True)
    ]
    try:
        for process in processes:
            process.start()
        barrier.wait(60)
        started = time.monotonic()
        seen: list[Timings] = []
        for receiving, _sending in pipes:
            if not receiving.poll(max(1.0, started + LONGEST_S - time.monotonic())):
                raise RuntimeError("a client did not end")
            received = receiving.recv()
            if isinstance(received, str):
                raise RuntimeError(received)
            seen.append(received)
    finally:
        for process in processes:
            if process.pid is not None:
                process.join(2)
                process.kill()
    latencies: dict[str, list[float]] = {}
    answers: dict[int, int] = {}
    for timings in seen:
        for name, values in timings.latencies.items():
            latencies.setdefault(name, []).extend(values)
        for status, number in timings.answers.items():
            answers[status] = answers.get(status, 0) + number
    return Timings(max(timings.wall_s for timings in seen), latencies, answers)


def _body(work: Work, barrier: Any, pipe: Any) -> None:
    try:
        barrier.wait(60)
        pipe.send(work())
    except Exception as error:
        # Send any error to the parent as text; the benchmark ends there.
        pipe.send(f"a client failed: {type(error).__name__}: {error}")


def post_batches(
    port: int, token: str, batches: Sequence[Batch], *, status: str = "created"
) -> Work:
    """Return the work of a client that posts `batches`; every item must be answered with `status`."""

    def work() -> Timings:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        latencies = []
        wanted = f'"status":"{status}"'.encode()
        started = time.monotonic()
        for batch in batches:
            sent = time.perf_counter()
            connection.request("POST", "/api/v1/events", body=batch.body, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
            latencies.append(time.perf_counter() - sent)
            if answer.status != 200 or text.count(wanted) != batch.items:
                raise RuntimeError(f"a batch was answered {answer.status}: {text[:300]!r}")
        wall_s = time.monotonic() - started
        connection.close()
        return Timings(wall_s, {"batch": latencies}, {200: len(batches)})

    return work


class Api:
    """An agent that reads, on one persistent connection."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}"}

    def get(self, path: str) -> bytes:
        """Return the content of a path; RuntimeError if the answer is not 200."""
        try:
            answer = self._answer(path)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            # The server closes idle connections, such as a reader's between its turns.
            self._connection.close()
            answer = self._answer(path)
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"GET {path} was answered {answer.status}: {text[:300]!r}")
        return text

    def _answer(self, path: str) -> http.client.HTTPResponse:
        self._connection.request("GET", path, headers=self._headers)
        return self._connection.getresponse()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def make_life_cycles(port: int, token: str, name: str, clients: int, effects: int) -> Work:
    """Return the work of a process with `clients` agents, each running `effects` effects to the end.

    Every command waits for the answer to the previous one, as an agent does.
    """

    def work() -> Timings:
        agents = [_Agent(port, token, f"{name}-{number}", effects) for number in range(clients)]
        latencies: dict[str, list[float]] = {command: [] for command in COMMANDS}
        answers: dict[int, int] = {}
        with selectors.DefaultSelector() as selector:
            for agent in agents:
                agent.open()
                selector.register(agent.socket, selectors.EVENT_READ, agent)
            started = time.monotonic()
            for agent in agents:
                agent.send()
            busy = len(agents)
            while busy:
                ready = selector.select(30)
                if not ready:
                    raise RuntimeError("no answer within 30 s")
                for key, _events in ready:
                    agent = key.data
                    status = agent.receive()
                    if status is None:
                        continue
                    latencies[agent.command].append(time.perf_counter() - agent.sent)
                    answers[status] = answers.get(status, 0) + 1
                    if not agent.advance(status):
                        selector.unregister(agent.socket)
                        agent.socket.close()
                        busy -= 1
            wall_s = time.monotonic() - started
        return Timings(wall_s, latencies, answers)

    return work


def parse_answer(buffer: bytes) -> tuple[int, bytes] | None:
    """Return status and content of the HTTP answer in `buffer`, or None while it is incomplete."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    head, content = buffer[:end].lower(), buffer[end + 4 :]
    status = int(buffer[9:12])
    place = head.find(b"content-length:")
    if place >= 0:
        length = int(head[place + 15 :].split(b"\r\n", 1)[0])
        return (status, content) if len(content) >= length else None
    # Otherwise the content is chunked: each chunk follows its length, and the last is empty.
    if not content.endswith(b"0\r\n\r\n"):
        return None
    parts: list[bytes] = []
    while True:
        size, _, rest = content.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return status, b"".join(parts)
        parts.append(rest[:length])
        content = rest[length + 2 :]


class _Agent:
    """One connection that plans, dispatches and acknowledges, one command at a time."""

    def __init__(self, port: int, token: str, name: str, effects: int) -> None:
        self.port, self.token, self.name, self.remaining = port, token, name, effects
        self.command = "plan"
        self.sent = 0.0
        self.number = 0
        self.effect: dict[str, Any] = {}
        self.buffer = b""
        self.socket = socket.socket()

    def open(self) -> None:
        """Connect, and open the session of the effects."""
        self.socket.connect(("127.0.0.1", self.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._post("/api/v1/sessions", {"key": f"bench-{self.name}", "title": "single commands"})
        status = None
        while status is None:
            status = self.receive()
        if status != 201:
            raise RuntimeError(f"the session was answered {status}: {self.buffer[:300]!r}")
        self.buffer = b""

    def send(self) -> None:
        """Send the next command."""
        self.number += 1
        if self.command == "plan":
            body = {
                "session": f"bench-{self.name}",
                "effect_key": f"call-{self.number}",
                "turn": f"turn-{self.number}",
                "tool": "git.push",
                "arguments": {"ref": self.name, "number": self.number, "note": "x" * 300},
            }
            self._post("/api/v1/effects", body)
        elif self.command == "dispatch":
            digest = self.effect["intent_digest"]
            self._post(
                f"/api/v1/effects/{self.effect['id']}/dispatch",
                {"process": "p", "intent_digest": digest},
            )
        else:
            answer = {
                "attempt": 1,
                "outcome": "ok",
                "external_reference": f"c{self.number}",
                "result": "y" * 300,
            }
            self._post(f"/api/v1/effects/{self.effect['id']}/acknowledge", answer)

    def _post(self, path: str, body: dict[str, Any]) -> None:
        text = json.dumps(body, separators=(",", ":")).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.token}\r\n"
            f"Idempotency-Key: {self.name}-{self.number}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n"
        ).encode()
        self.sent = time.perf_counter()
        self.socket.sendall(head + text)

    def receive(self) -> int | None:
        """Read from the socket. Once the answer is complete, return its status; `buffer` has its content."""
        piece = self.socket.recv(65536)
        if not piece:
            raise RuntimeError("the server closed the connection")
        self.buffer += piece
        answer = parse_answer(self.buffer)
        if answer is None:
            return None
        status, self.buffer = answer
        return status

    def advance(self, status: int) -> bool:
        """Process the answer and send the next command; False when the work is done."""
        if status not in (200, 201):
            raise RuntimeError(f"{self.command} was answered {status}: {self.buffer[:300]!r}")
        if self.command == "plan":
            self.effect = json.loads(self.buffer)
        self.buffer = b""
        if self.command == "acknowledge":
            self.remaining -= 1
            if not self.remaining:
                return False
        self.command = COMMANDS[(COMMANDS.index(self.command) + 1) % len(COMMANDS)]
        self.send()
        return True
