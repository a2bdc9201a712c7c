"""The real Codex against the real server, with a scripted model and `gatebook hook`."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.config.server import Server
from tests.hooks.real.installed_agents import Codex, find_agent
from tests.hooks.real.live_project import LiveProject, make_live_project
from tests.hooks.real.scripted_models import ScriptedModel, Step, ToolCall

PUSH = "./git push origin HEAD:agent/cx"


@pytest.fixture
def project(live_server_process: Server) -> LiveProject:
    find_agent("codex")
    return make_live_project(live_server_process, f"codex-{uuid.uuid4().hex[:8]}")


@contextmanager
def play(project: LiveProject, folder: Path, *commands: str) -> Iterator[Codex]:
    """Run Codex whose model makes one shell call after another."""
    steps = [Step(calls=[ToolCall("exec_command", {"cmd": command})]) for command in commands]
    with ScriptedModel(steps) as model:
        codex = Codex(folder / "codex", model, project.server.url, project.token)
        program = codex.work / "git"
        program.write_text('#!/bin/sh\necho "$@" >> pushed\n')
        program.chmod(0o755)
        yield codex


def list_pushes(codex: Codex) -> list[str]:
    file = codex.work / "pushed"
    return file.read_text().splitlines() if file.exists() else []


def test_calls_that_no_rule_holds_run_and_are_recorded(
    project: LiveProject, tmp_path: Path
) -> None:
    with play(project, tmp_path, "echo one") as codex:
        codex.run("do it")
        assert "one" in codex.list_results()[-1]
    (effect,) = project.list_effects()
    assert (effect["tool"], effect["state"]) == ("shell.read", "acknowledged")


def test_a_held_call_is_denied_and_runs_once_after_its_approval(
    project: LiveProject, tmp_path: Path
) -> None:
    with play(project, tmp_path, PUSH) as codex:
        codex.run("do it")
        gate = project.wait_for_gate()
        assert f"/approvals/{gate['id']}/" in codex.list_results()[-1]
        assert list_pushes(codex) == []
        project.rule()
        codex.model.steps = [codex.model.steps[0], Step("waiting"), codex.model.steps[0]]
        codex.run("resume", "--last", "try again")
        assert list_pushes(codex) == ["push origin HEAD:agent/cx"]
    (push,) = project.list_effects()
    # Codex reports no exit code.
    assert (push["state"], push["outcome"], push["attempt"]) == ("acknowledged", "unknown", 1)


def test_a_rejected_call_does_not_run_and_the_model_reads_why(
    project: LiveProject, tmp_path: Path
) -> None:
    with play(project, tmp_path, PUSH) as codex:
        codex.run("do it")
        project.rule("deny", reason="the release is frozen")
        codex.model.steps = [codex.model.steps[0], Step("waiting"), codex.model.steps[0]]
        codex.run("resume", "--last", "try again")
        assert "the release is frozen" in codex.list_results()[-1]
        assert list_pushes(codex) == []
