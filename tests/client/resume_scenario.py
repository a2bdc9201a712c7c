"""Real runners before a real server: what waits, what continues it, and people who rule."""

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.client.test_pushes import WITHIN_S, wait_until
from tests.config.server import ROOT, Server
from tests.hooks.hook_client import RULES
from tests.hooks.real.live_project import LiveProject, make_live_project

# Appends a line about each start: the gate, its status and the folder.
PROGRAM: Final = """
import os, sys, time
from pathlib import Path
marks = Path(sys.argv[1])
with marks.open("a") as file:
    file.write(" ".join([*sys.argv[2:], os.getcwd()]) + "\\n")
while marks.with_suffix(".hold").exists():
    time.sleep(0.05)
print("it ran")
sys.exit(int(os.environ.get("EXIT_CODE", "0")))
"""
TOOLS: Final = """
from ledger.models import Tool
from accounts.models import Project
from tests.rows_with_entries import add_row
add_row(Tool(project=Project.objects.get(name={name!r}), name="session.resume",
    tool_class="opaque", reversibility="compensable", request_lifetime_s=1))
"""
ACTIVATE: Final = """
from django.db import transaction
from accounts.models import Project
from approvals.policies import policies
project = Project.objects.get(name={name!r})
with transaction.atomic():
    policies.activate_policy_set(project, policies.load_policy_set(project, {rules!r}), "enforce")
"""
RESOLVE: Final = """
import uuid
from accounts.models import Membership, Project
from accounts import people
from django.db import transaction
from approvals.gates import resolution
from ledger.models import Effect
from ledger.resolutions import ResolutionInput
project = Project.objects.get(name={name!r})
with transaction.atomic():
    member = people.add_project_member(project, {person!r}, "operator", "p" * 16)
effect = Effect.objects.get(id=uuid.UUID({effect!r}))
done = resolution.resolve_effect(effect.id, member, ResolutionInput("not_happened",
    "seen on the machine: it did not run", effect.version, insists=True, step_up="typed_digest"))
assert done.refusal is None, done.refusal
"""


@dataclass
class Scenario:
    """A project whose pushes are held, a folder with commands, and the runners over both."""

    project: LiveProject
    folder: Path
    rules: str = "resume.json"
    running: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def marks(self) -> Path:
        return self.folder / "marks"

    def list_starts(self) -> list[str]:
        """Return a line for each start of the command."""
        return self.marks.read_text().splitlines() if self.marks.exists() else []

    def write_rules(self, *commands: dict[str, Any]) -> Path:
        file = self.folder / self.rules
        file.write_text(json.dumps({"commands": list(commands)}))
        return file

    def build_rule(self, **members: Any) -> dict[str, Any]:
        """Return a rule whose command writes into `marks`, in the folder of the session."""
        program = self.folder / "program.py"
        program.write_text(PROGRAM)
        words = ["{gate_handle}", "{status}", "{meta.transcript}"]
        run = [sys.executable, str(program), str(self.marks), *words]
        where = {"cwd": "{meta.cwd}", "folders": [str(self.folder)]}
        return {"name": "again", "run": run, **where, **members}

    def wait_for_people(self, session: str = "", **meta: str) -> dict[str, Any]:
        """Open a session whose only call waits for people; return the answer to its plan."""
        session = session or f"run-{uuid.uuid4().hex[:8]}"
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        meta = {"cwd": str(work), "transcript": "t-1"} | meta
        agent = self.project.agent
        agent.session(session, meta=meta)
        ref = f"feature-{uuid.uuid4().hex[:8]}"
        planned = agent.plan(f"push-{ref}", session=session, arguments={"ref": ref})
        assert planned["answer"] == "wait", planned
        return planned

    def start(self, *words: str, url: str = "", waits: bool = True) -> "subprocess.Popen[str]":
        """Start a runner as its operator does; return when it has looked once at all gates."""
        file = self.folder / self.rules
        environment = os.environ | {
            "GATEBOOK_URL": url or self.project.server.url,
            "GATEBOOK_TOKEN": self.project.token,
            "PYTHONPATH": str(ROOT / "client"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "PYTHONUNBUFFERED": "1",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "gatebook_client", "resume-runner", str(file), *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.running.append(process)
        if waits:
            wait_for_line(process, "Watching")
        return process

    def run_once(self, *words: str, url: str = "") -> tuple[int, str]:
        process = self.start("--once", *words, url=url, waits=False)
        printed, _ = process.communicate(timeout=WITHIN_S)
        return process.returncode, printed

    def stop(self, process: "subprocess.Popen[str]") -> str:
        """End a runner as its operator does; return what it printed."""
        process.terminate()
        printed, _ = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0, printed
        return printed

    def load_claims(self, session: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the effects that stand for starts, of a session given by its plan."""
        items: list[dict[str, Any]] = self.project.agent.get(
            "/effects", session=f"resume:{session['session']}"
        ).json()["items"]
        return items

    def wait_for_state(self, session: dict[str, Any], state: str) -> dict[str, Any]:
        wait_until(lambda: [c["state"] for c in self.load_claims(session)] == [state])
        (claim,) = self.load_claims(session)
        return claim

    def rule(self, answer: str = "approve") -> None:
        self.project.rule(answer)

    def let_requests_expire(self, after: str) -> None:
        """From now on, a push that nobody answers expires after this time."""
        rules = RULES.replace("{minimum: 1,", f"{{minimum: 1, decide_within: {after},")
        assert rules != RULES
        self.project.server.run(ACTIVATE.format(name=self.project.name, rules=rules))

    def resolve_as_not_happened(self, effect: str) -> None:
        """Resolve an effect as a person who looked: it did not happen."""
        person = f"{self.project.name}-{uuid.uuid4().hex[:6]}"
        code = RESOLVE.format(name=self.project.name, person=person, effect=effect)
        self.project.server.run(code)

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate()


def wait_for_line(process: "subprocess.Popen[str]", words: str) -> str:
    """Return the first line that a runner prints with these words."""
    assert process.stdout is not None
    lines = []
    for line in iter(process.stdout.readline, ""):
        if words in line:
            return line
        lines.append(line)
    raise AssertionError("".join(lines))


def make_scenario(server: Server, folder: Path) -> Scenario:
    project = make_live_project(server, f"resume-{uuid.uuid4().hex[:8]}")
    server.run(TOOLS.format(name=project.name))
    return Scenario(project, folder)


class HoldingRelay:
    """Passes requests on. Answers to requests on paths that end with `held` are never sent."""

    def __init__(self, target: str, held: str) -> None:
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.pass_on(None)

            def do_POST(self) -> None:
                self.pass_on(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            def pass_on(self, body: bytes | None) -> None:
                names = ("Authorization", "Content-Type", "Idempotency-Key")
                headers = {name: self.headers[name] for name in names if self.headers[name]}
                request = urllib.request.Request(
                    target + self.path, body, headers, method=self.command
                )
                try:
                    with urllib.request.urlopen(request, timeout=60) as response:
                        status, answer = response.status, response.read()
                except urllib.error.HTTPError as error:
                    status, answer = error.code, error.read()
                if relay.held and self.path.endswith(relay.held):
                    relay.reached.set()
                    relay.released.wait(WITHIN_S)
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_words: Any) -> None:
                pass

        self.held = held
        self.reached = threading.Event()
        self.released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def serve(self) -> Iterator["HoldingRelay"]:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self.released.set()
            self._server.shutdown()
            self._server.server_close()
