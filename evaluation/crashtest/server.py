"""The servers under trial: fresh installations without jobs, with an injected clock."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Final

from evaluation.bench import installation as bench
from evaluation.bench.person import Person
from evaluation.crashtest.clock import Clock
from evaluation.crashtest.domain import DECLARED, LIFETIME_S

ROOT: Final = bench.ROOT
AGENT: Final = "rig"
RULES: Final = """
name: rig
rules:
  - {id: gated, title: Needs approval, match: {tools: [rig.gated]}, outcome: require}
  - {id: rest, title: The rest, match: {}, outcome: allow}
"""
PASSWORD: Final = "rig-Rig-rig-4711"  # noqa: S105 - accounts that exist only during a run
# One start of Django for all commands, because each start costs a second of CPU time.
_PREPARE: Final = """
import sys
from django.core.management import call_command
from django.db import transaction
call_command("setup")
call_command("load_tools", sys.argv[-2])
from approvals.policies import policies
from accounts import people
from accounts import projects
project = projects.find_project("default")
with transaction.atomic(durable=True):
    policies.activate_policy_set(project, policies.load_policy_set(project, open(sys.argv[-1]).read()), "enforce")
for name in ("anna", "ben"):
    with transaction.atomic(durable=True):
        people.add_project_member(project, name, "reviewer", "%(password)s")
call_command("issue_token", "--agent", "%(agent)s")
"""


class Reviewer(Person):
    """A person who votes on gates. A forked process reconnects."""

    def __init__(self, port: int, name: str, password: str) -> None:
        self._process = os.getpid()
        super().__init__(port, name, password)

    def _answer(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> HTTPResponse:
        if self._process != os.getpid():
            self._process = os.getpid()
            self._connection = HTTPConnection(
                self._connection.host, self._connection.port, timeout=60
            )
        return super()._answer(method, path, body, headers)

    def open_gate(self, gate: str) -> str:
        """Open the page of a gate; return the `seen` token of what it showed."""
        page = self.get(f"/approvals/{gate}/").decode()
        seen, token = (
            re.search(f'name="{name}" value="([^"]+)"', page)
            for name in ("seen", "csrfmiddlewaretoken")
        )
        if seen is None or token is None:
            raise RuntimeError("the page of an open gate has no form")
        self._cookies["csrf"] = token[1]
        return seen[1]

    def vote(self, gate: str, choice: str, seen: str) -> bool:
        """Send the form of a gate's page; return whether the vote was accepted."""
        fields = {"answer": choice, "reason": "checked by the rig", "seen": seen, "settled": "1"}
        try:
            self.fill_in(f"/approvals/{gate}/vote/", fields)
        except RuntimeError as refused:
            if " 409" not in str(refused):
                raise
            return False
        return True


@dataclass
class Installation:
    """A served installation: its port, a token, and its clock."""

    vendor: str
    port: int
    token: str
    clock: Clock
    folder: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes]
    lock: threading.Lock
    people: dict[str, "Reviewer"] = field(default_factory=dict)

    def get_reviewer(self, name: str) -> "Reviewer":
        """Return a reviewer who is signed in: anna or ben."""
        if name not in self.people:
            self.people[name] = Reviewer(self.port, name, PASSWORD)
        return self.people[name]

    def restart_server(self) -> None:
        """Start the server again after a crash, unless another thread did."""
        with self.lock:
            if bench._ready(self.port):
                return
            _end(self.process)
            self.process = _start(self.environment, self.vendor, self.port)
            _wait(self.process, self.port)


@contextmanager
def serve_installation(
    vendor: str, folder: Path, cluster: bench.Cluster | None
) -> Iterator[Installation]:
    """Make an installation in `folder` with the rig's tools and rules, and serve it until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)  # may already contain a schema
    url = ""
    if cluster is not None:
        import psycopg

        with psycopg.connect(cluster.address("gatebook"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{folder.name}"')
        url = cluster.url(folder.name)
    environment = {
        **bench._environment(folder, url),
        "RIG_CLOCK": str(folder / "clock"),
        "GATEBOOK_THREADS": "16",
        "GATEBOOK_LOG_LEVEL": "ERROR",
        "MALLOC_ARENA_MAX": "2",
        "DJANGO_SETTINGS_MODULE": os.environ.get("DJANGO_SETTINGS_MODULE", "config.settings"),
    }
    clock = Clock(folder / "clock")
    tools, rules = folder / "tools.yaml", folder / "rules.yaml"
    declared: dict[str, dict[str, object]] = {
        name: {"request_lifetime_s": LIFETIME_S, **means} for name, means in DECLARED.items()
    }
    tools.write_text(json.dumps({"tools": declared}))  # JSON is YAML
    rules.write_text(RULES)
    parameters = {"password": PASSWORD, "agent": AGENT}
    program = [
        "-c",
        f"import django; django.setup()\n{_PREPARE % parameters}",
        str(tools),
        str(rules),
    ]
    output = bench._run([sys.executable, *program], environment)
    issued = re.search(r"gbk_\S+", output)
    if issued is None:
        raise RuntimeError(f"no token was issued: {output[-500:]}")
    with bench.own_port() as port:
        process = _start(environment, vendor, port)
        installation = Installation(
            vendor, port, issued[0], clock, folder, environment, process, threading.Lock()
        )
        try:
            _wait(process, port)
            yield installation
        finally:
            _end(installation.process)


def _start(environment: dict[str, str], vendor: str, port: int) -> subprocess.Popen[bytes]:
    options = {
        "--host": "127.0.0.1",
        "--port": str(port),
        "--workers": "1" if vendor == "sqlite" else "2",
        "--blocking-threads": environment["GATEBOOK_THREADS"],
        "--workers-kill-timeout": "3",
    }
    command = [
        sys.executable,
        "-m",
        "config.http_server",
        *(part for pair in options.items() for part in pair),
    ]
    with (Path(environment["GATEBOOK_VAR"]) / "server.log").open("a") as log:
        return subprocess.Popen(
            [*command, "evaluation.crashtest.server_hooks:application"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            preexec_fn=bench._die_with(os.getpid()),
        )


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + bench.READY_WITHIN_S
    while not bench._ready(port):
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError("the server under trial did not start; see server.log in its folder")
        time.sleep(0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
