"""The real Claude Code, continued by a runner: it was deferred, and no process lived meanwhile."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.resume_scenario import wait_for_line
from tests.config.server import ROOT, Server
from tests.hooks.real.installed_agents import ClaudeCode, find_agent, wait_until
from tests.hooks.real.live_project import LiveProject, make_live_project
from tests.hooks.real.test_claude_code import PUSH, list_pushes, play


@pytest.fixture
def project(live_server_process: Server, tmp_path: Path) -> LiveProject:
    find_agent("claude")
    return make_live_project(live_server_process, f"resumed-{tmp_path.name[-24:]}")


def start_runner(project: LiveProject, claude: ClaudeCode, folder: Path) -> "subprocess.Popen[str]":
    """Start a runner in the environment of the user of Claude Code."""
    command = {
        "name": "claude-code",
        "match": {"labels.client": "claude-code"},
        "run": [
            str(claude.program),
            *("-p", "", "--resume", "{session_key}"),
            *("--output-format", "json", *claude.options),
        ],
        "cwd": "{meta.cwd}",
        "folders": [str(claude.work)],
    }
    rules = folder / "resume.json"
    rules.write_text(json.dumps({"commands": [command]}))
    runner = subprocess.Popen(
        [sys.executable, "-m", "gatebook_client", "resume-runner", str(rules)],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "client"),
            "HOME": str(claude.folder / "home"),
            "ANTHROPIC_BASE_URL": claude.model.address,
            "ANTHROPIC_API_KEY": "scripted",
            "GATEBOOK_URL": project.server.url,
            "GATEBOOK_TOKEN": project.token,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for_line(runner, "Watching")
    return runner


def stop(runner: "subprocess.Popen[str]") -> str:
    runner.terminate()
    printed, _ = runner.communicate(timeout=60)
    assert runner.returncode == 0, printed
    return printed


def list_own_effects(project: LiveProject) -> list[dict[str, object]]:
    return [effect for effect in project.list_effects() if effect["tool"] == "git.push"]


def test_a_deferred_push_goes_on_when_it_is_approved(project: LiveProject, tmp_path: Path) -> None:
    with play(project, tmp_path, PUSH) as claude:
        assert claude.prompt()["stop_reason"] == "tool_deferred"
        assert list_pushes(claude) == []
        runners = [start_runner(project, claude, tmp_path) for _ in range(2)]
        project.rule()
        wait_until(lambda: [e["state"] for e in list_own_effects(project)] == ["acknowledged"])
        wait_until(lambda: "resume.ended" in list_kinds(project))
        printed = "".join(stop(runner) for runner in runners)
        assert printed.count("started claude-code") == 1
        assert "ended with exit code 0" in printed
        assert list_pushes(claude) == ["push origin HEAD:agent/cc"]
    (push,) = list_own_effects(project)
    assert (push["outcome"], push["attempt"]) == ("ok", 1)
    session = project.agent.get(f"/sessions/{push['session']}").json()
    assert session["meta"]["worker"]["name"] == "claude-code"


def test_a_denied_push_goes_on_with_the_words_of_the_reviewer(
    project: LiveProject, tmp_path: Path
) -> None:
    with play(project, tmp_path, PUSH) as claude:
        assert claude.prompt()["stop_reason"] == "tool_deferred"
        runner = start_runner(project, claude, tmp_path)
        project.rule("deny", reason="the release is frozen")
        wait_until(lambda: "resume.ended" in list_kinds(project))
        stop(runner)
        assert "the release is frozen" in claude.list_results()[-1]
        assert list_pushes(claude) == []


def list_kinds(project: LiveProject) -> list[str]:
    rows = project.agent.get("/search", q="event kind:resume.*").json()["rows"]
    return [row["kind"] for row in rows]
