"""`gatebook codex-approvals` before the real Codex app-server, with a scripted model."""

import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evaluation.bench.installation import own_port
from tests.config.server import Server
from tests.hooks.real.app_server import AppServerClient
from tests.hooks.real.installed_agents import find_agent
from tests.hooks.real.live_project import LiveProject, make_live_project
from tests.hooks.real.scripted_models import ScriptedModel, Step, ToolCall

PUSH = "./git push origin HEAD:agent/cx"
PUSHED = ["push origin HEAD:agent/cx"]
GIT = '#!/bin/sh\necho "$@" >> pushed\n[ -e slow ] && sleep 30\necho done\n'
PATCH = """apply_patch <<'EOF'
*** Begin Patch
*** Add File: notes.txt
+hello
*** End Patch
EOF"""


@pytest.fixture
def project(live_server_process: Server) -> LiveProject:
    find_agent("codex")
    return make_live_project(live_server_process, f"approvals-{uuid.uuid4().hex[:8]}")


@contextmanager
def play(project: LiveProject, folder: Path, *commands: str) -> Iterator[AppServerClient]:
    """Start Codex whose model makes one shell call after another."""
    with ScriptedModel(make_steps(*commands)) as model:
        client = AppServerClient(folder / "codex", model, project.server.url, project.token)
        (client.work / "git").write_text(GIT)
        (client.work / "git").chmod(0o755)
        try:
            yield client
        finally:
            client.close()


def load_arguments(project: LiveProject) -> dict[str, Any]:
    """Return the arguments of the newest plan of the project."""
    code = (
        "from journal.models import Entry; from accounts.models import Project;"
        f" project = Project.objects.get(name={project.name!r});"
        " print(Entry.objects.filter(kind='effect.planned', project=project.id)"
        ".latest('position').body.text)"
    )
    arguments: dict[str, Any] = json.loads(project.server.run(code))["arguments"]
    return arguments


def make_steps(*commands: str) -> list[Step]:
    return [Step(calls=[ToolCall("exec_command", {"cmd": command})]) for command in commands]


def test_what_no_rule_holds_is_accepted_and_acknowledged_with_its_exit_code(
    project: LiveProject, tmp_path: Path
) -> None:
    with play(project, tmp_path, "touch one", "touch /none/two") as codex:
        codex.start()
        codex.run_turn()
        assert (codex.work / "one").exists()
        assert codex.end() == 0
    effects = project.list_effects()
    assert [effect["outcome"] for effect in effects] == ["ok", "error"]
    assert [effect["permission"] for effect in effects] == ["used", "used"]
    assert project.load_results()[0] == {"exit_code": 0, "output": ""}


def test_a_push_waits_for_people_and_runs_once(project: LiveProject, tmp_path: Path) -> None:
    with play(project, tmp_path, PUSH) as codex:
        codex.start()
        codex.begin_turn()
        gate = project.wait_for_gate()
        assert codex.list_pushes() == []
        codex.wait_until(lambda: any(gate["id"] in text for text in codex.list_warnings()))
        assert codex.count("item/commandExecution/requestApproval") == 0
        project.rule()
        codex.await_turn()
        assert codex.list_pushes() == PUSHED
        assert codex.end() == 0
    (push,) = project.list_effects()
    assert (push["tool"], push["state"], push["outcome"]) == ("git.push", "acknowledged", "ok")
    assert push["attempt"] == 1
    assert project.count_violations() == 0


class TypingModel(ScriptedModel):
    """A model that types into the terminal that Codex has opened for it."""

    def choose_step(self, answered: int) -> Step:
        step = super().choose_step(answered)
        terminals = re.findall(r"session ID (\d+)", json.dumps(self.requests[-1]["input"]))
        for call in step.calls if terminals else ():
            call.arguments["session_id"] = int(terminals[-1])
        return step


def test_input_to_a_running_command_is_a_call_of_its_own(
    project: LiveProject, tmp_path: Path
) -> None:
    """Codex asks for it where the command runs outside of the sandbox of its thread."""
    shell = {"cmd": "sh -i", "tty": True, "yield_time_ms": 1000}
    escalated = {"sandbox_permissions": "require_escalated", "justification": "a shell"}
    typed = {"chars": "touch typed\n", "yield_time_ms": 1000}
    steps = [
        Step(calls=[ToolCall("exec_command", shell | escalated)]),
        Step(calls=[ToolCall("write_stdin", typed)]),
        Step(calls=[ToolCall("write_stdin", typed | {"chars": "exit\n"})]),
    ]
    with TypingModel(steps) as model:
        codex = AppServerClient(tmp_path / "codex", model, project.server.url, project.token)
        try:
            codex.start(sandbox="read-only")
            codex.run_turn()
            assert (codex.work / "typed").exists()
            assert codex.end() == 0
        finally:
            codex.close()
    effects = project.list_effects()
    assert [effect["tool"] for effect in effects][1:] == ["write_stdin"] * 2
    states = [(effect["permission"], effect["state"]) for effect in effects]
    assert states == [("used", "acknowledged")] * 3
    assert project.count_violations() == 0


def test_the_default_command_starts_the_real_app_server(
    project: LiveProject, tmp_path: Path
) -> None:
    with ScriptedModel([]) as model:
        codex = AppServerClient(tmp_path / "codex", model, project.server.url, project.token)
        codex.command = []
        codex.environment["PATH"] = f"{codex.program.parent}:{os.environ['PATH']}"
        try:
            codex.start()
            codex.run_turn()
            assert codex.end() == 0
        finally:
            codex.close()


def test_a_refusal_reaches_the_model_with_the_words_of_the_reviewer(
    project: LiveProject, tmp_path: Path
) -> None:
    with play(project, tmp_path, PUSH) as codex:
        codex.start()
        codex.begin_turn()
        project.rule("deny", reason="the release is frozen")
        codex.await_turn()
        assert codex.list_statuses() == ["declined"]
        assert any("the release is frozen" in text for text in codex.list_texts())
        assert codex.list_pushes() == []


def test_after_the_wait_the_request_stays_in_the_inbox_and_is_continued(
    project: LiveProject, tmp_path: Path
) -> None:
    with play(project, tmp_path, PUSH) as codex:
        codex.options = ["--wait", "0"]
        codex.start()
        codex.run_turn()
        assert codex.list_pushes() == []
        assert codex.end() == 0
        project.rule()  # no process of Codex lives
        codex.model.steps = [codex.model.steps[0], Step("waiting"), codex.model.steps[0]]
        codex.start()
        codex.run_turn("try again")
        assert codex.list_pushes() == PUSHED
        codex.end()
    (push,) = project.list_effects()
    assert (push["state"], push["outcome"], push["attempt"]) == ("acknowledged", "ok", 1)


@pytest.mark.parametrize("policy", ["never", "on-request"])
def test_the_client_cannot_switch_the_questions_off(
    project: LiveProject, tmp_path: Path, policy: str
) -> None:
    with play(project, tmp_path, PUSH) as codex:
        codex.start(approvalPolicy=policy, config={"approval_policy": policy})
        codex.begin_turn(approvalPolicy=policy, approvalsReviewer="auto_review")
        project.wait_for_gate()
        assert codex.list_pushes() == []


def test_what_codex_runs_without_asking_is_found(project: LiveProject, tmp_path: Path) -> None:
    with play(project, tmp_path, PUSH) as codex:
        codex.options = ["--keep-policy"]
        codex.start(approvalPolicy="never")
        codex.run_turn()
        assert codex.list_pushes() == PUSHED
        codex.end()
    assert project.count_violations() == 1


@pytest.mark.parametrize("failure", ["away", "bad token"])
def test_without_gatebook_nothing_is_accepted(
    project: LiveProject, tmp_path: Path, failure: str
) -> None:
    with play(project, tmp_path, PUSH) as codex, own_port() as port:
        if failure == "away":
            codex.environment["GATEBOOK_URL"] = f"http://127.0.0.1:{port}"
        else:
            codex.environment["GATEBOOK_TOKEN"] = f"gbk_aaaaaaaa_{'b' * 43}"
        codex.start()
        codex.run_turn()
        assert codex.list_statuses() == ["declined"]
        assert codex.list_pushes() == []


def test_a_change_of_files_shows_what_it_changes(project: LiveProject, tmp_path: Path) -> None:
    with play(project, tmp_path, PATCH) as codex:
        codex.start()
        codex.run_turn()
        assert (codex.work / "notes.txt").read_text() == "hello\n"
        codex.end()
    (change,) = project.list_effects()
    assert (change["tool"], change["outcome"]) == ("apply_patch", "ok")
    (written,) = load_arguments(project)["changes"]
    assert written["path"].endswith("notes.txt")
    assert written["diff"] == "hello\n"


@pytest.mark.parametrize("killed", ["proxy", "codex"])
def test_a_kill_before_the_approval_leaves_one_request_and_one_push(
    project: LiveProject, tmp_path: Path, killed: str
) -> None:
    with play(project, tmp_path, PUSH) as codex:
        codex.start()
        codex.begin_turn()
        project.wait_for_gate()
        codex.kill(proxy=killed == "proxy")
        project.rule()
        # Codex says to its model that the call was aborted, and the model asks again.
        codex.model.steps = make_steps(PUSH, PUSH)
        codex.start()
        codex.run_turn("go on")
        assert codex.list_pushes() == PUSHED
        codex.end()
    (push,) = project.list_effects()
    assert (push["state"], push["outcome"], push["attempt"]) == ("acknowledged", "ok", 1)


@pytest.mark.parametrize("killed", ["proxy", "codex"])
def test_a_kill_during_the_call_meets_the_open_intent(
    project: LiveProject, tmp_path: Path, killed: str
) -> None:
    with play(project, tmp_path, PUSH) as codex:
        (codex.work / "slow").touch()
        codex.start()
        codex.begin_turn()
        project.rule()
        codex.wait_until(lambda: bool(codex.list_pushes()))
        codex.kill(proxy=killed == "proxy")
        (codex.work / "slow").unlink()
        codex.model.steps = make_steps(PUSH, PUSH)
        codex.start()
        codex.run_turn("go on")
        assert codex.list_pushes() == PUSHED
        assert any("no result was reported" in text for text in codex.list_texts())
        codex.end()
    (push,) = project.list_effects()
    assert (push["state"], push["attempt"]) == ("dispatched", 1)
