"""How agents and the rig reach the oracle, and how the oracle is started."""

import http.client
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.rig.choices import Choices

ROOT = Path(__file__).resolve().parents[2]


class LostAnswer(Exception):
    """No answer came in time: what became of the request nobody knows."""


class Rejected(Exception):
    """The remote said no, and nothing happened."""


@dataclass(frozen=True)
class Oracle:
    """Where the oracle listens and keeps its log."""

    port: int
    file: Path

    def log(self) -> sqlite3.Connection:
        """Its log, to be read when the runs are over."""
        return sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)


@contextmanager
def oracle(folder: Path) -> Iterator[Oracle]:
    """Run the oracle in a process of its own until the block ends."""
    file = folder / "oracle.sqlite3"
    process = subprocess.Popen(
        [sys.executable, "-m", "evaluation.rig.oracle", str(file)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("a process without pipes")
        yield Oracle(int(process.stdout.readline()), file)
        process.stdin.close()
        process.wait(10)
    finally:
        process.kill()
        process.wait()


class Wire:
    """One kept-open connection to an HTTP service of this machine; made anew in a process that was forked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._process = 0
        self._connection: http.client.HTTPConnection

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request and return status, headers and content. OSError or HTTPException when no answer came."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            self._connection.request(method, path, body, headers or {})
            answer = self._connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise


class Remote:
    """The remote as one run sees it. What the adversary does with a request is chosen here and travels with it."""

    def __init__(self, at: Oracle, world: str, choices: Choices) -> None:
        self._wire, self.world, self._choices = Wire(at.port), world, choices

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
        """For the rig: time passes, and what is in flight lands; after a long time the remote forgets keys."""
        self._ask("settle", long=long)

    def note(self, **note: Any) -> None:
        """For the rig: what was said at this moment, kept in the order of what was so."""
        self._ask("note", step=str(note.get("step", "")), note=note)

    def _ask(self, verb: str, **said: Any) -> dict[str, Any]:
        body = json.dumps({"world": self.world, **said}).encode()
        _, _, content = self._wire.ask("POST", f"/{verb}", body, {"Content-Type": "application/json"})
        answer: dict[str, Any] = json.loads(content)
        return answer
