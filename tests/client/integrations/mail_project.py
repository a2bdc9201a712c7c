"""A project of the running server for the programs of docs/how-to, and these programs."""

import json
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.config.server import ROOT, Server
from tests.evaluation.test_demo_agent import rule
from tests.hooks.real.live_project import LiveProject
from tests.pages.people import PASSWORD

AGENTS: Final = Path(__file__).parent / "agents"
PYTHON: Final = ROOT / ".venv" / "agents" / "frameworks" / "bin" / "python"
PAGES: Final = ROOT / "docs" / "how-to"
WITHIN_S: Final = 120
_MAKE: Final = """
from django.db import transaction
from accounts import agents, people, projects, tokens
with transaction.atomic():
    project = projects.create_project({name!r})
    people.add_project_member(project, {person!r}, "reviewer", {password!r})
    print(tokens.issue_token(agents.ensure_agent(project, "mailer"), expires_in=None, actor="tests"))
"""


def read_examples(page: str, language: str) -> list[str]:
    """Return the examples of a page in one language."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def make_mail_project(server: Server, name: str, folder: Path) -> LiveProject:
    """Make a project with the tools and the policy of docs/how-to/frameworks.md."""
    code = _MAKE.format(name=name, person=f"{name}-guy", password=PASSWORD)
    token = server.run(code).strip()
    tools, policies = read_examples("frameworks", "yaml")
    (folder / "tools.yaml").write_text(tools)
    (folder / "policies.yaml").write_text(policies)
    for line in read_examples("frameworks", "console")[0].splitlines():
        _python, _manage, *words = line.replace(" shop ", f" {name} ").split()
        server.manage(*(str(folder / word) if word.endswith(".yaml") else word for word in words))
    return LiveProject(server, name, token)


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    """Return a tool call of a scripted turn."""
    return {"name": name, "id": call_id, "args": arguments}


@dataclass
class MailAgent:
    """The program of one page in a folder, with a scripted model."""

    folder: Path
    page: str
    project: LiveProject
    key: str = "mail-1"
    _running: list["subprocess.Popen[str]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "program.py").write_text("\n".join(read_examples(self.page, "python")))

    def script(self, *turns: list[dict[str, Any]] | str) -> None:
        """Set the turns of the model: calls, or a text that ends the run."""
        plain = [{"text": turn} if isinstance(turn, str) else {"calls": turn} for turn in turns]
        (self.folder / "script.json").write_text(json.dumps(plain))

    def start(self, **environment: str) -> "subprocess.Popen[str]":
        """Start a process of the program."""
        process = subprocess.Popen(
            [PYTHON, AGENTS / f"{self.page.replace('-', '_')}_mail.py", self.key, "Tell them"],
            cwd=self.folder,
            env={
                **os.environ,
                "GATEBOOK_URL": self.project.server.url,
                "GATEBOOK_TOKEN": self.project.token,
                "PYTHONPATH": str(ROOT / "client"),
                "PYTHONUNBUFFERED": "1",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._running.append(process)
        return process

    def run(self, *, ok: bool = True, **environment: str) -> str:
        """Run a process of the program to its end; return its output."""
        process = self.start(**environment)
        output, _ = process.communicate(timeout=WITHIN_S)
        assert (process.returncode == 0) == ok, output
        return output

    def kill_at(self, mark: str, **environment: str) -> None:
        """Run a process until it writes the mark, and kill it there with SIGKILL."""
        count = self.marks.count(mark)
        process = self.start(STAND=mark, **environment)
        until = time.monotonic() + WITHIN_S
        while self.marks.count(mark) == count:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < until, f"{mark} was not reached"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def close(self) -> None:
        """Kill what still runs, also what killed processes had started."""
        for process in self._running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.stdout is not None and not process.stdout.closed:
                process.communicate()

    @property
    def marks(self) -> list[str]:
        path = self.folder / "marks"
        return path.read_text().split() if path.exists() else []

    @property
    def outbox(self) -> list[str]:
        """To whom mails were delivered, in order."""
        path = self.folder / "outbox.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["to"] for line in lines]

    @property
    def results(self) -> list[str]:
        """The results of calls that the model got in its newest request."""
        results: list[str] = json.loads((self.folder / "results.json").read_text())
        return results

    def rule(self, answer: str = "approve", reason: str = "agreed in INC-204") -> None:
        """Let the reviewer rule on the newest gate that waits."""
        gate = self.project.wait_for_gate()
        rule(self.project.server, gate["id"], f"{self.project.name}-guy", answer, reason)

    def list_states(self) -> list[str]:
        """Return the states of the project's effects that were not withdrawn, oldest first."""
        effects = self.project.list_effects()
        return [effect["state"] for effect in effects if effect["state"] != "superseded"]
