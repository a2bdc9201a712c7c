"""Connections of agents and rig to the oracle, and the start of the oracle."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from evaluation.bench.clients import parse_answer
from evaluation.crashtest.schedules import Choices

ROOT = Path(__file__).resolve().parents[2]


class LostAnswer(Exception):
    """No answer came in time; the outcome of the request is unknown."""


class Rejected(Exception):
    """The remote rejected the request, and nothing happened."""


@dataclass(frozen=True)
class Oracle:
    """The connection to the oracle and the file of its log."""

    line: "Line"
    file: Path

    def log(self) -> sqlite3.Connection:
        """Open the log for reading, after the runs."""
        return sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)


@contextmanager
def run_oracle(folder: Path) -> Iterator[Oracle]:
    """Run the oracle in a process of its own until the block ends."""
    file = folder / "oracle.sqlite3"
    process = subprocess.Popen(
        [sys.executable, "-m", "evaluation.crashtest.oracle", str(file)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("a process without pipes")
        yield Oracle(Line(int(process.stdout.readline())), file)
        process.stdin.close()
        process.wait(10)
    finally:
        process.kill()
        process.wait()


class Line:
    """A persistent connection to the oracle, in lines of JSON; a forked process reconnects."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._process = 0
        self._lock = threading.Lock()
        self._socket: socket.socket
        self._answers: BinaryIO

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer. ConnectionError if none came."""
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                self._socket = _connect(self._port)
                self._answers = self._socket.makefile("rb")
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            line = self._answers.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the oracle closed the connection")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Wire:
    """A persistent connection to a local HTTP service; a forked process reconnects.

    Over a bare socket, because an HTTP library takes longer to read an answer's head than the service
    takes to write it.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._process = 0
        self._socket: socket.socket | None = None

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Send a request and return status and content. OSError if no answer came."""
        if self._socket is None or self._process != os.getpid():
            self._process, self._socket = os.getpid(), _connect(self.port)
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        try:
            self._socket.sendall("\r\n".join([*lines, "", ""]).encode() + (body or b""))
            received = b""
            while (answer := parse_answer(received)) is None:
                piece = self._socket.recv(65536)
                if not piece:
                    raise ConnectionResetError("the server closed the connection")
                received += piece
        except OSError:
            self._socket.close()
            self._socket = None
            raise
        return answer


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Remote:
    """The remote as one run sees it. Requests carry the adversary's choice of what it does."""

    def __init__(self, at: Oracle, world: str, choices: Choices) -> None:
        self._line, self.world, self._choices = at.line, world, choices

    def execute(self, tool_class: str, step: str, key: str) -> str:
        """Execute a step; return the remote's reference. Raises LostAnswer and Rejected."""
        choice = self._choices.adversary()
        reply = self._ask("execute", step=step, key=key, choice=choice, **{"class": tool_class})
        self._choices.tick("request sent")
        if reply.get("lost"):
            raise LostAnswer
        if reply.get("rejected"):
            raise Rejected
        return str(reply["reference"])

    def probe(self, step: str, key: str) -> str | None:
        """Probe a step; return the remote's reference, or None."""
        reply = self._ask("probe", step=step, key=key)
        return str(reply["reference"]) if reply["found"] else None

    def cancel(self, step: str, key: str) -> str:
        """Cancel a step by its key; later requests with that key are refused."""
        return str(self._ask("cancel", step=step, key=key)["reference"])

    def settle(self, *, long: bool = False) -> None:
        """For the rig: let time pass, so that requests in flight land; long: keys are forgotten."""
        self._ask("settle", long=long)

    def note(self, **note: Any) -> None:
        """For the rig: record a claim in the log, in the order of the facts."""
        self._ask("note", step=str(note.get("step", "")), note=note)

    def _ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        return self._line.ask(verb=verb, world=self.world, **arguments)
