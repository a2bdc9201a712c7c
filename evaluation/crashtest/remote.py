"""How agents and the rig reach the oracle, and how the oracle is started."""

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

from evaluation.bench.clients import whole
from evaluation.crashtest.schedules import Choices

ROOT = Path(__file__).resolve().parents[2]


class LostAnswer(Exception):
    """No answer came in time: what became of the request nobody knows."""


class Rejected(Exception):
    """The remote said no, and nothing happened."""


@dataclass(frozen=True)
class Oracle:
    """The line to the oracle, and where it keeps its log."""

    line: "Line"
    file: Path

    def log(self) -> sqlite3.Connection:
        """Its log, to be read when the runs are over."""
        return sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)


@contextmanager
def oracle(folder: Path) -> Iterator[Oracle]:
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
    """One kept-open connection to the oracle, a line of JSON each way; made anew in a process that
    was forked."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._process = 0
        self._lock = threading.Lock()
        self._socket: socket.socket
        self._answers: BinaryIO

    def ask(self, **said: Any) -> dict[str, Any]:
        """Say something and hear the answer. ConnectionError when none came."""
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                self._socket = _connected(self._port)
                self._answers = self._socket.makefile("rb")
            self._socket.sendall(json.dumps(said).encode() + b"\n")
            line = self._answers.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the oracle hung up")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Wire:
    """One kept-open connection to an HTTP service of this machine; made anew in a process that was
    forked.

    Over a bare socket: a library reads the head of an answer for longer than the service takes to
    write it.
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
        """Send a request and return status and content. OSError when no answer came."""
        if self._socket is None or self._process != os.getpid():
            self._process, self._socket = os.getpid(), _connected(self.port)
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        try:
            self._socket.sendall("\r\n".join([*lines, "", ""]).encode() + (body or b""))
            heard = b""
            while (answer := whole(heard)) is None:
                piece = self._socket.recv(65536)
                if not piece:
                    raise ConnectionResetError("the server hung up")
                heard += piece
        except OSError:
            self._socket.close()
            self._socket = None
            raise
        return answer


def _connected(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=60)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class Remote:
    """The remote as one run sees it. What the adversary does with a request is chosen here and
    travels with it."""

    def __init__(self, at: Oracle, world: str, choices: Choices) -> None:
        self._line, self.world, self._choices = at.line, world, choices

    def execute(self, tool_class: str, step: str, key: str) -> str:
        """Do it; return the remote's name for it. Raises LostAnswer and Rejected."""
        choice = self._choices.adversary()
        said = self._ask("execute", step=step, key=key, choice=choice, **{"class": tool_class})
        self._choices.tick("request sent")
        if said.get("lost"):
            raise LostAnswer
        if said.get("rejected"):
            raise Rejected
        return str(said["reference"])

    def probe(self, step: str, key: str) -> str | None:
        """Look it up: the remote's name for it, or None."""
        said = self._ask("probe", step=step, key=key)
        return str(said["reference"]) if said["found"] else None

    def cancel(self, step: str, key: str) -> str:
        """Undo it by its key; under that key nothing happens any more."""
        return str(self._ask("cancel", step=step, key=key)["reference"])

    def settle(self, *, long: bool = False) -> None:
        """For the rig: time passes, and what is in flight lands; after a long time the remote
        forgets keys."""
        self._ask("settle", long=long)

    def note(self, **note: Any) -> None:
        """For the rig: what was said at this moment, kept in the order of what was so."""
        self._ask("note", step=str(note.get("step", "")), note=note)

    def _ask(self, verb: str, **said: Any) -> dict[str, Any]:
        return self._line.ask(verb=verb, world=self.world, **said)
