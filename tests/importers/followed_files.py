"""A transcript that grows, and the real process that follows it."""

import json
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.client.test_pushes import WITHIN_S, wait_until
from tests.config.server import ROOT, Command
from tests.hooks.real.live_project import LiveProject

# New lines are seen after a fifth of the usual time.
LOOK_OFTEN = "from importers import follow; follow.LOOK_S = 0.2"
# The clock of the process stands still until the file is there.
STOPPED_CLOCK = """
import time
from pathlib import Path
from types import SimpleNamespace
from importers import follow
follow.time = SimpleNamespace(sleep=time.sleep, time=time.time,
    monotonic=lambda: time.monotonic() if Path({file!r}).exists() else 0.0)
"""
PUSH = "git push origin HEAD:refs/heads/agent/cc"
ENTRIES = """
import json
from accounts.models import Project
from journal.models import Entry
project = Project.objects.get(name={name!r}).id
rows = Entry.objects.filter(project=project, lane__in=("evidence", "claim", "system"))
rows = rows.filter(kind__regex=r"^(effect|transcript|session|integrity)[.]").order_by("position")
print(json.dumps([[row.kind, row.lane, row.body.text if hasattr(row, "body") else ""]
    for row in rows]))
"""


@dataclass
class Transcript:
    """A transcript of Claude Code that is written as the program writes it."""

    path: Path
    session: str = field(default_factory=lambda: str(uuid.uuid4()))
    lines: int = 0

    def build(self, kind: str, content: Any) -> bytes:
        self.lines += 1
        record = {
            "type": kind,
            "sessionId": self.session,
            "uuid": f"{self.session}-{self.lines}",
            "timestamp": f"2026-11-23T10:00:{self.lines % 60:02}.000Z",
            "cwd": "/home/ada/shop",
            "version": "2.1.197",
            "message": {"id": f"m-{self.lines}", "role": kind, "content": content},
        }
        return json.dumps(record).encode() + b"\n"

    def build_call(self, call_id: str, command: str = "make test") -> bytes:
        block = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": command}}
        return self.build("assistant", [block])

    def build_result(self, call_id: str, content: str = "ok", *, failed: bool = False) -> bytes:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        return self.build("user", [block | ({"is_error": True} if failed else {})])

    def append(self, *parts: bytes) -> None:
        with self.path.open("ab") as file:
            for part in parts:
                file.write(part)


@dataclass
class Following:
    """The process that follows, and what it recorded in its project."""

    project: LiveProject
    folder: Path
    processes: list["subprocess.Popen[bytes] | Command"] = field(default_factory=list)

    def start(
        self,
        *places: Path,
        name: str = "claude-code",
        settle: str = "0",
        is_remote: bool = True,
        before: str = "",
    ) -> None:
        """Start the command: a new process in the installation, a copy of the shell elsewhere.

        The copy runs the lines `before` first.
        """
        words = ["--follow", "--settle", settle, "--state", str(self.folder / "state.json")]
        followed = ["import_trajectory", name, *map(str, places), *words]
        server, log = self.project.server, self.folder / "log"
        if is_remote:
            address = ["--url", server.url, "--token", self.project.token]
            process = Command(
                server.shell, log, *followed, *address, before=f"{LOOK_OFTEN}\n{before}"
            )
            self.processes.append(process)
            return
        address = ["--project", self.project.name, "--agent", "coder"]
        with log.open("ab") as file:
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "manage.py", *followed, *address],
                    cwd=ROOT,
                    env=server.environment,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
            )

    def kill(self) -> None:
        process = self.processes[-1]
        process.kill()
        process.wait(WITHIN_S)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def wait_for(self, words: str, times: int = 1) -> None:
        wait_until(lambda: self.log.count(words) >= times or self.processes[-1].poll() is not None)
        assert self.log.count(words) >= times, self.log

    def list_effects(self) -> list[tuple[str, str, str]]:
        """Return key, state and outcome of the project's effects, oldest first."""
        return [
            (effect["effect_key"], effect["state"], effect.get("outcome") or "")
            for effect in self.project.list_effects(limit="200")
        ]

    def wait_for_effects(self, count: int, state: str = "acknowledged") -> None:
        wait_until(
            lambda: (
                [effect[1] for effect in self.list_effects()] == [state] * count
                or self.processes[-1].poll() is not None
            )
        )
        assert [effect[1] for effect in self.list_effects()] == [state] * count, self.log

    def list_entries(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Return kind, lane and body of the entries that are not commands."""
        rows = json.loads(self.project.server.run(ENTRIES.format(name=self.project.name)))
        return [(kind, lane, json.loads(text or "{}")) for kind, lane, text in rows]

    def list_kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.list_entries()]

    def send_hook(self, transcript: Transcript, name: str, call_id: str, **more: Any) -> Any:
        """Send a hook of Claude Code."""
        body = {
            "hook_event_name": name,
            "session_id": transcript.session,
            "cwd": "/home/ada/shop",
            "prompt_id": "turn-1",
            "tool_name": "Bash",
            "tool_input": {"command": more.pop("command", "make test")},
            "tool_use_id": call_id,
        }
        return self.post_hook("claude-code", body | more)

    def post_hook(self, client: str, body: dict[str, Any]) -> Any:
        """Send a hook, and return its answer."""
        answer = self.project.agent.post(f"/hooks/{client}", body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(WITHIN_S)


def has_effects(following: Following, count: int) -> bool:
    return len(following.list_effects()) == count
