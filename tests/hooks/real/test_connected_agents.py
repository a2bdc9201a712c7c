"""The real Codex and Gemini CLI, set up by `gatebook connect`, against the real server."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.config.server import Server
from tests.hooks.real.connected_agents import ConnectedAgent, open_agent
from tests.hooks.real.live_project import LiveProject, make_live_project
from tests.hooks.real.slow_relay import SlowRelay

PUSH = "./git push origin HEAD:agent/x"
PUSHED = ["push origin HEAD:agent/x"]


@pytest.fixture(params=["codex", "gemini"])
def agent(
    request: pytest.FixtureRequest, live_server_process: Server, tmp_path: Path
) -> Iterator[ConnectedAgent]:
    project = make_live_project(live_server_process, f"connected-{uuid.uuid4().hex[:8]}")
    with open_agent(request.param, project, tmp_path) as agent:
        yield agent


def list_pushes(project: LiveProject) -> list[tuple[str, str, int]]:
    """Return state, outcome and attempt of the project's pushes."""
    return [
        (effect["state"], effect.get("outcome", ""), effect.get("attempt", 0))
        for effect in project.list_effects()
        if effect["tool"] == "git.push"
    ]


def test_connect_ends_with_a_test_that_a_push_is_held(agent: ConnectedAgent) -> None:
    done = agent.connect()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Held: `git push origin HEAD:refs/heads/main`" in done.stdout
    done = agent.connect("--test-command", "git status")
    assert done.returncode == 3, done.stdout + done.stderr


def test_calls_that_no_rule_holds_run_and_are_recorded(agent: ConnectedAgent) -> None:
    assert agent.connect("--no-test").returncode == 0
    agent.run("echo one", "cat /none", resumes=False)
    written, missing = agent.list_results()[-2:]
    assert "one" in written
    assert "No such file" in missing
    effects = agent.project.list_effects()
    assert [effect["tool"] for effect in effects] == ["shell.read", "shell.read"]
    assert {effect["state"] for effect in effects} == {"acknowledged"}
    if agent.name == "gemini":  # Codex reports no exit code
        assert [effect["outcome"] for effect in effects] == ["ok", "error"]
    assert agent.project.count_violations() == 0


def test_a_held_push_runs_once_when_it_is_asked_for_after_the_approval(
    agent: ConnectedAgent,
) -> None:
    assert agent.connect("--no-test").returncode == 0
    agent.run(PUSH, resumes=False)
    gate = agent.project.wait_for_gate()
    assert gate["id"] in agent.list_results()[-1]
    assert agent.list_done() == []
    agent.run(PUSH)  # nobody has decided
    assert agent.list_done() == []
    agent.project.rule()
    agent.run(PUSH)
    assert agent.list_done() == PUSHED
    # Only `gatebook exec`, which runs rewritten calls, reports the exit code of a push.
    outcome = "ok" if agent.name == "gemini" else "unknown"
    assert list_pushes(agent.project) == [("acknowledged", outcome, 1)]
    assert agent.project.count_violations() == 0


def test_a_refused_push_does_not_run_and_the_model_reads_why(agent: ConnectedAgent) -> None:
    assert agent.connect("--no-test").returncode == 0
    agent.run(PUSH, resumes=False)
    agent.project.rule("deny", reason="the release is frozen")
    agent.run(PUSH)
    assert "the release is frozen" in agent.list_results()[-1]
    assert agent.list_done() == []


def test_a_push_killed_before_the_answer_of_its_hook_runs_once(agent: ConnectedAgent) -> None:
    assert agent.connect("--no-test").returncode == 0
    agent.run("echo one", resumes=False)
    with SlowRelay(agent.project.server.url, 15) as relay:
        agent.move(relay.address)
        agent.kill(agent.start(PUSH), lambda: bool(list_pushes(agent.project)))
        agent.move(agent.project.server.url)
    agent.project.rule()
    agent.run(PUSH)
    assert agent.list_done() == PUSHED
    assert [attempt for _, _, attempt in list_pushes(agent.project)] == [1]


def test_a_push_killed_while_it_runs_is_not_run_again(agent: ConnectedAgent) -> None:
    assert agent.connect("--no-test").returncode == 0
    agent.run(PUSH, resumes=False)
    agent.project.rule()
    (agent.work / "slow").touch()
    agent.kill(agent.start(PUSH), lambda: bool(agent.list_done()))
    (agent.work / "slow").unlink()
    agent.run(PUSH)
    assert "no result was reported" in agent.list_results()[-1]
    assert agent.list_done() == PUSHED
    (push,) = list_pushes(agent.project)
    assert push[0] == "dispatched"
