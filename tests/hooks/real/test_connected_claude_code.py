"""The real Claude Code as `gatebook connect` sets it up: command hooks and the permission tool."""

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gatebook_client.connections import store_connection

from evaluation.bench.installation import own_port
from tests.config.server import ROOT, Server
from tests.hooks.real.installed_agents import ClaudeCode, find_agent
from tests.hooks.real.live_project import LiveProject, make_live_project
from tests.hooks.real.scripted_models import ScriptedModel, Step, ToolCall
from tests.hooks.real.slow_relay import SlowRelay
from tests.hooks.real.test_claude_code import GIT, PUSH, list_pushes

GATEBOOK = f"""#!/bin/sh
export PYTHONPATH={ROOT / "client"}
exec {sys.executable} -m gatebook_client "$@"
"""
PERMISSION = ("--permission-prompt-tool", "mcp__gatebook__permission", "--mcp-config")


@pytest.fixture
def project(live_server_process: Server) -> LiveProject:
    find_agent("claude")
    return make_live_project(live_server_process, f"connected-{uuid.uuid4().hex[:8]}")


class Connected:
    """Claude Code in a home of its own, set up by `gatebook connect`."""

    def __init__(self, project: LiveProject, claude: ClaudeCode) -> None:
        self.project, self.claude = project, claude
        self.home = claude.folder / "home"

    @property
    def settings(self) -> Path:
        return self.home / ".claude" / "settings.json"

    def connect(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run `gatebook connect claude-code` as at the shell of its user."""
        return subprocess.run(
            ["gatebook", "connect", "claude-code", "--yes", *words],
            cwd=self.claude.work,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "GATEBOOK_URL": self.project.server.url,
                "GATEBOOK_TOKEN": self.project.token,
            },
            capture_output=True,
            text=True,
            check=False,
        )


@contextmanager
def play(
    project: LiveProject, folder: Path, monkeypatch: pytest.MonkeyPatch, *commands: str
) -> Iterator[Connected]:
    """Run Claude Code whose model makes one shell call after another."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "gatebook").write_text(GATEBOOK)
    (programs / "gatebook").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    steps = [
        Step(calls=[ToolCall("Bash", {"command": command, "description": "a step"})])
        for command in commands
    ]
    with ScriptedModel(steps) as model:
        claude = ClaudeCode(folder / "claude", model, project.server.url, project.token)
        (claude.work / ".claude" / "settings.json").unlink()
        (claude.work / "git").write_text(GIT)
        (claude.work / "git").chmod(0o755)
        try:
            yield Connected(project, claude)
        finally:
            claude.close()


def test_connect_ends_with_a_test_that_a_push_is_held(
    project: LiveProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with play(project, tmp_path, monkeypatch) as connected:
        done = connected.connect()
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Held: `git push origin HEAD:refs/heads/main`" in done.stdout
        assert project.agent.get("/gates?status=pending").json()["items"] == []
        done = connected.connect("--test-command", "git status")
        assert done.returncode == 3, done.stdout + done.stderr
        assert "Not held" in done.stdout


def test_a_held_push_waits_without_a_process_and_runs_once_under_gatebook_exec(
    project: LiveProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with play(project, tmp_path, monkeypatch, PUSH) as connected:
        assert connected.connect("--no-test").returncode == 0
        claude = connected.claude
        assert claude.prompt()["stop_reason"] == "tool_deferred"
        assert list_pushes(claude) == []
        project.rule()
        assert claude.go_on()["result"] == "done"
        assert list_pushes(claude) == ["push origin HEAD:agent/cc"]
    (push,) = project.list_effects()
    assert (push["tool"], push["state"], push["outcome"]) == ("git.push", "acknowledged", "ok")


@pytest.mark.parametrize("failure", ["away", "slow", "broken", "not set up"])
def test_whatever_fails_the_push_does_not_run(
    project: LiveProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    with (
        play(project, tmp_path, monkeypatch, PUSH) as connected,
        SlowRelay(project.server.url, delay_s=5) as relay,
    ):
        assert connected.connect("--no-test").returncode == 0
        text = connected.settings.read_text()
        monkeypatch.setenv("XDG_CONFIG_HOME", str(connected.home / ".config"))
        if failure == "away":
            with own_port() as port:
                store_connection("default", f"http://127.0.0.1:{port}", project.token)
        elif failure == "slow":
            store_connection("default", relay.address, project.token)
            text = text.replace("--connection", "--deadline 1 --connection")
        elif failure == "broken":
            text = text.replace(sys.executable, f"{sys.executable}-missing")
        else:
            text = text.replace("--connection default", "--connection missing")
        connected.settings.write_text(text)
        assert connected.claude.prompt()["result"] == "done"
        assert list_pushes(connected.claude) == []


def test_the_permission_tool_waits_for_people_and_the_call_runs_once(
    project: LiveProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with play(project, tmp_path, monkeypatch, "touch free", PUSH) as connected:
        assert connected.connect("--no-test").returncode == 0
        connected.settings.unlink()  # the tool alone, without hooks
        configuration = connected.home / "mcp.json"
        server = {"command": "gatebook", "args": ["mcp-permissions", "--connection", "default"]}
        configuration.write_text(json.dumps({"mcpServers": {"gatebook": server}}))
        connected.claude.options = (*PERMISSION, str(configuration))
        thread = threading.Thread(target=project.rule)
        thread.start()
        assert connected.claude.prompt()["result"] == "done"
        thread.join()
        assert (connected.claude.work / "free").exists()
        assert list_pushes(connected.claude) == ["push origin HEAD:agent/cc"]
    states = [(effect["tool"], effect["state"]) for effect in project.list_effects()]
    assert ("git.push", "dispatched") in states  # without hooks nobody reports the outcome


def test_the_permission_tool_beside_hooks_is_about_the_same_call(
    project: LiveProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with play(project, tmp_path, monkeypatch, "touch free") as connected:
        assert connected.connect("--no-test").returncode == 0
        configuration = connected.home / "mcp.json"
        server = {"command": "gatebook", "args": ["mcp-permissions", "--connection", "default"]}
        configuration.write_text(json.dumps({"mcpServers": {"gatebook": server}}))
        connected.claude.options = (*PERMISSION, str(configuration))
        assert connected.claude.prompt()["result"] == "done"
        assert (connected.claude.work / "free").exists()
    (effect,) = project.list_effects()
    assert (effect["state"], effect["outcome"]) == ("acknowledged", "ok")


def test_without_gatebook_the_permission_tool_denies(
    project: LiveProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with play(project, tmp_path, monkeypatch, PUSH) as connected:
        configuration = connected.home / "mcp.json"
        server = {"command": "gatebook", "args": ["mcp-permissions", "--connection", "missing"]}
        configuration.write_text(json.dumps({"mcpServers": {"gatebook": server}}))
        connected.claude.options = (*PERMISSION, str(configuration))
        assert connected.claude.prompt()["result"] == "done"
        assert list_pushes(connected.claude) == []
