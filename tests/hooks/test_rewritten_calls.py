"""Shell commands that `gatebook exec` runs: it dispatches the effect just before it acts."""

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.api.api_client import NO_TLS, Caller
from tests.config.server import Server
from tests.hooks.real.live_project import LiveProject, make_live_project

PROGRAM = f'#!/bin/sh\nexec {sys.executable} -m gatebook_client "$@"\n'


RECORDER = '#!/bin/sh\necho "$@" >> pushed\n[ ! -e fails ]\n'


class RewritingClient:
    """A client of the command `gatebook hook`, which says that `gatebook exec` is available."""

    def __init__(self, project: LiveProject, folder: Path) -> None:
        self.project, self.folder = project, folder
        (folder / "bin").mkdir()
        for name, text in (("gatebook", PROGRAM), ("git", RECORDER), ("kubectl", RECORDER)):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)

    def send(self, event: str, command: str, call_id: str = "toolu_1", **more: Any) -> Any:
        body = {
            "session_id": "s-1",
            "prompt_id": "turn-1",
            "cwd": str(self.folder),
            "hook_event_name": event,
            "tool_name": "Bash",
            "tool_input": {"command": command, "description": "why"},
            "tool_use_id": call_id,
            "gatebook": {"rewrite": True},
        }
        answer = Caller(self.project.token, address=self.project.server.url).client.post(
            "/hooks/claude-code", json=body | more
        )
        assert answer.status_code == 200
        return answer.json()

    def run(self, command: str) -> "subprocess.CompletedProcess[str]":
        environment = os.environ | {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "GATEBOOK_URL": self.project.server.url,
            "GATEBOOK_TOKEN": self.project.token,
        }
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def list_pushes(self) -> list[str]:
        file = self.folder / "pushed"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def client(live_server_process: Server, tmp_path: Path) -> RewritingClient:
    assert NO_TLS
    project = make_live_project(live_server_process, f"exec-{uuid.uuid4().hex[:8]}")
    return RewritingClient(project, tmp_path)


def test_a_permitted_command_is_rewritten_and_reports_its_exit_code(
    client: RewritingClient,
) -> None:
    command = "kubectl delete pod 'p 1' && kubectl delete pod p2"
    output = client.send("PreToolUse", command)["hookSpecificOutput"]
    assert "permissionDecision" not in output  # the client's own permissions decide
    updated = output["updatedInput"]
    assert updated["command"].startswith("gatebook exec ")
    assert updated["description"] == "why"
    (effect,) = client.project.list_effects()
    assert (effect["state"], effect["permission"]) == ("planned", "granted")
    (client.folder / "fails").touch()
    ran = client.run(updated["command"])
    assert ran.returncode == 1, ran.stderr
    assert client.list_pushes() == ["delete pod p 1"]
    (effect,) = client.project.list_effects()
    assert (effect["state"], effect["outcome"], effect["attempt"]) == ("acknowledged", "error", 1)
    # The hook after the call has the rewritten command; nothing is recorded a second time.
    assert client.send("PostToolUse", updated["command"], tool_response={"stdout": ""}) == {}
    assert len(client.project.list_effects()) == 1
    assert client.project.count_violations() == 0
    # Run again, it does nothing.
    assert client.run(updated["command"]).returncode == 1
    assert client.list_pushes() == ["delete pod p 1"]


def test_a_held_command_is_denied_first_and_rewritten_after_its_approval(
    client: RewritingClient,
) -> None:
    command = "git push origin HEAD:agent/x"
    output = client.send("PreToolUse", command)["hookSpecificOutput"]
    assert output["permissionDecision"] == "deny"
    client.project.rule()
    output = client.send("PreToolUse", command, "toolu_2", prompt_id="turn-2")["hookSpecificOutput"]
    assert output["permissionDecision"] == "allow"
    ran = client.run(output["updatedInput"]["command"])
    assert ran.returncode == 0, ran.stderr
    assert client.list_pushes() == ["push origin HEAD:agent/x"]
    (effect,) = client.project.list_effects()
    assert (effect["outcome"], effect["attempt"]) == ("ok", 1)


def test_a_command_that_changes_nothing_outside_stays_as_it_is(client: RewritingClient) -> None:
    assert client.send("PreToolUse", "ls") == {
        "hookSpecificOutput": {"hookEventName": "PreToolUse"}
    }


def test_a_command_with_a_secret_stays_as_it_is(client: RewritingClient) -> None:
    secret = f"gbk_abcdefgh_{'A' * 43}"
    output = client.send("PreToolUse", f"curl -X POST -d {secret} https://example.org")
    assert output == {"hookSpecificOutput": {"hookEventName": "PreToolUse"}}


def test_exec_runs_nothing_else_than_its_arguments_say(client: RewritingClient) -> None:
    ran = client.run(
        """gatebook exec --tool t --arguments '{"command":"git status"}' -- bash -c 'git push'"""
    )
    assert ran.returncode not in (0, 1), ran
    assert "--arguments" in ran.stderr
    assert client.list_pushes() == []


def test_while_gatebook_is_away_a_rewritten_command_does_not_run(
    client: RewritingClient,
) -> None:
    output = client.send("PreToolUse", "kubectl delete pod p1")["hookSpecificOutput"]
    command = output["updatedInput"]["command"].replace(
        "gatebook exec", "gatebook --url http://127.0.0.1:9 --patience 0.2 exec"
    )
    assert client.run(command).returncode != 0
    assert client.list_pushes() == []
