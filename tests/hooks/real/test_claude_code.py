"""The real Claude Code against the real server, with a scripted model and HTTP hooks."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.config.server import Server
from tests.hooks.real.installed_agents import ClaudeCode, find_agent
from tests.hooks.real.live_project import LiveProject, make_live_project
from tests.hooks.real.scripted_models import ScriptedModel, Step, ToolCall
from tests.hooks.real.slow_relay import SlowRelay

# Each line of `pushed` is one push that happened; `git` is a program of the test.
GIT = '#!/bin/sh\necho "$@" >> pushed\n[ -e slow ] && sleep 30\necho done\n'
PUSH = "./git push origin HEAD:agent/cc"
WAITING = "?waiting=defer"


@pytest.fixture
def project(live_server_process: Server) -> LiveProject:
    find_agent("claude")
    return make_live_project(live_server_process, f"claude-{uuid.uuid4().hex[:8]}")


@contextmanager
def play(
    project: LiveProject,
    folder: Path,
    *commands: str,
    url: str = "",
    query: str = WAITING,
    timeout_s: int = 20,
) -> Iterator[ClaudeCode]:
    """Run Claude Code whose model makes one shell call after another."""
    steps = [
        Step(calls=[ToolCall("Bash", {"command": command, "description": f"step {number}"})])
        for number, command in enumerate(commands)
    ]
    with ExitStack() as stack:
        model = stack.enter_context(ScriptedModel(steps))
        claude = ClaudeCode(
            folder / "claude",
            model,
            url or project.server.url,
            project.token,
            query=query,
            timeout_s=timeout_s,
        )
        stack.callback(claude.close)
        program = claude.work / "git"
        program.write_text(GIT)
        program.chmod(0o755)
        yield claude


def list_pushes(claude: ClaudeCode) -> list[str]:
    file = claude.work / "pushed"
    return file.read_text().splitlines() if file.exists() else []


def test_calls_that_no_rule_holds_run_and_are_recorded(
    project: LiveProject, tmp_path: Path
) -> None:
    with play(project, tmp_path, "echo one", "echo two; exit 3") as claude:
        assert claude.prompt()["result"] == "done"
        assert [result.splitlines()[-1] for result in claude.list_results()] == ["one", "two"]
    effects = project.list_effects()
    assert [effect["state"] for effect in effects] == ["acknowledged"] * 2
    assert [effect["outcome"] for effect in effects] == ["ok", "error"]
    results = project.load_results()
    assert results[0]["stdout"] == "one"
    assert results[1]["exit_code"] == 3


def test_a_held_call_is_deferred_approved_on_the_page_and_runs_once(
    project: LiveProject, tmp_path: Path
) -> None:
    with play(project, tmp_path, PUSH) as claude:
        assert claude.prompt()["stop_reason"] == "tool_deferred"
        assert list_pushes(claude) == []
        assert claude.go_on()["stop_reason"] == "tool_deferred"  # nobody has ruled yet
        project.rule()
        assert claude.go_on()["result"] == "done"
        assert list_pushes(claude) == ["push origin HEAD:agent/cc"]
    (push,) = project.list_effects()
    assert (push["state"], push["outcome"], push["attempt"]) == ("acknowledged", "ok", 1)
    assert project.wait_for_gate("used")["tool"] == "git.push"


def test_a_rejected_call_does_not_run_and_the_model_reads_why(
    project: LiveProject, tmp_path: Path
) -> None:
    with play(project, tmp_path, PUSH) as claude:
        claude.prompt()
        project.rule("deny", reason="the release is frozen")
        assert claude.go_on()["result"] == "done"
        assert "the release is frozen" in claude.list_results()[-1]
        assert list_pushes(claude) == []


def test_without_defer_the_model_reads_where_to_ask(project: LiveProject, tmp_path: Path) -> None:
    with play(project, tmp_path, PUSH, query="") as claude:
        assert claude.prompt()["result"] == "done"
        gate = project.wait_for_gate()
        assert f"/approvals/{gate['id']}/" in claude.list_results()[-1]
        assert list_pushes(claude) == []
        project.rule()
        # The next run makes exactly this call again, under a new id.
        claude.model.steps = [claude.model.steps[0], Step("done"), claude.model.steps[0]]
        assert claude.go_on("try again")["result"] == "done"
        assert list_pushes(claude) == ["push origin HEAD:agent/cc"]
    (push,) = project.list_effects()
    assert (push["outcome"], push["attempt"]) == ("ok", 1)


def test_a_killed_call_is_not_run_again(project: LiveProject, tmp_path: Path) -> None:
    """Killed while it pushes: `--continue` repeats the id, and a new prompt uses a new id."""
    with play(project, tmp_path, PUSH) as claude:
        claude.prompt()
        project.rule()
        (claude.work / "slow").touch()
        process = claude.start("-p", "", "--continue")
        claude.kill(process, lambda: bool(list_pushes(claude)))
        (claude.work / "slow").unlink()
        assert claude.go_on()["result"] == "done"
        assert "no result was reported" in claude.list_results()[-1]
        claude.model.steps = [claude.model.steps[0], Step("stopped"), claude.model.steps[0]]
        assert claude.go_on("push it again")["result"] == "done"
        assert "A person must resolve it" in claude.list_results()[-1]
        assert list_pushes(claude) == ["push origin HEAD:agent/cc"]
    (push,) = project.list_effects()
    assert (push["state"], push["attempt"]) == ("dispatched", 1)


def test_a_call_killed_before_its_answer_runs_once(project: LiveProject, tmp_path: Path) -> None:
    with (
        SlowRelay(project.server.url, 30) as relay,
        play(project, tmp_path, PUSH, url=relay.address, query="", timeout_s=60) as claude,
    ):
        process = claude.start("-p", "do it")
        claude.kill(process, lambda: bool(project.list_effects()))
        relay.delay_s = 0
        project.rule()
        # The client dropped the call, and its model asks again under a new id.
        assert claude.go_on("go on")["result"] == "done"
        assert list_pushes(claude) == ["push origin HEAD:agent/cc"]
    (push,) = project.list_effects()
    assert (push["outcome"], push["attempt"]) == ("ok", 1)


def test_a_hook_that_times_out_is_found_as_executed_without_approval(
    project: LiveProject, tmp_path: Path
) -> None:
    """Claude Code runs the call after its own limit of 1 second. The result shows it at once."""
    with (
        SlowRelay(project.server.url, 3) as relay,
        play(project, tmp_path, PUSH, url=relay.address, query="", timeout_s=1) as claude,
    ):
        claude.prompt()
        assert list_pushes(claude) == ["push origin HEAD:agent/cc"]
        answers = dict(relay.answers)
        output = answers["PreToolUse"]["hookSpecificOutput"]
        assert output["permissionDecision"] == "deny"
        assert "without Gatebook's permission" in answers["PostToolUse"]["systemMessage"]
    assert project.count_violations() == 1


def test_a_bad_token_holds_every_call(project: LiveProject, tmp_path: Path) -> None:
    project.token = f"gbk_aaaaaaaa_{'b' * 43}"
    with play(project, tmp_path, PUSH) as claude:
        assert claude.prompt()["result"] == "done"
        assert "token" in claude.list_results()[-1]
        assert list_pushes(claude) == []
