"""The recipes of docs/how-to with the real packages and a real server, killed at any step."""

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.integrations.mail_project import AGENTS, MailAgent, call, make_mail_project
from tests.config.server import ROOT, Server
from tests.hooks.real.live_project import make_live_project

PYTHON = ROOT / ".venv" / "agents" / "recipes" / "bin" / "python"
pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        not PYTHON.exists(), reason="the recipes' packages are missing; `make test-agents` installs"
    ),
]
numbers = itertools.count()
PUSH = "./git push origin HEAD:agent/mini"
PUSHED = ["push origin HEAD:agent/mini"]


class RecipeAgent(MailAgent):
    """The program of one recipe, in the environment of the recipes."""

    program = ""

    def start(self, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [PYTHON, AGENTS / f"{self.program}.py", self.key, "It is done"],
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder),
                "GATEBOOK_URL": self.project.server.url,
                "GATEBOOK_TOKEN": self.project.token,
                "PYTHONPATH": str(ROOT / "client"),
                "PYTHONUNBUFFERED": "1",
                "MSWEA_SILENT_STARTUP": "1",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._running.append(process)
        return process


@pytest.fixture
def workflow(live_server_process: Server, tmp_path: Path) -> Iterator[RecipeAgent]:
    project = make_mail_project(live_server_process, f"dbos-{next(numbers)}", tmp_path)
    agent = RecipeAgent(tmp_path / "work", "dbos", project, key="wf-1")
    agent.program = "dbos_mail"
    yield agent
    agent.close()


def send_to(workflow: RecipeAgent, name: str) -> None:
    (workflow.folder / "script.json").write_text(json.dumps(name))


def test_a_step_is_one_effect_under_its_workflow_and_step(workflow: RecipeAgent) -> None:
    send_to(workflow, "ada")
    assert "sent to ada" in workflow.run()
    assert "sent to ada" in workflow.run()  # the same workflow, which has ended
    (effect,) = workflow.project.list_effects()
    assert (effect["effect_key"], effect["state"]) == ("wf-1:1", "acknowledged")
    assert workflow.outbox == ["ada"]


def test_a_workflow_waits_for_people_without_a_process(workflow: RecipeAgent) -> None:
    send_to(workflow, "press")
    workflow.kill_at("waiting")
    gate = workflow.project.wait_for_gate()
    assert workflow.outbox == []
    workflow.rule("approve")
    assert "sent to press" in workflow.run()
    assert workflow.outbox == ["press"]
    assert workflow.project.agent.get(f"/gates/{gate['id']}").json()["status"] == "used"


@pytest.mark.parametrize("answer", ["deny", "request_changes"])
def test_a_workflow_polls_until_people_refuse(workflow: RecipeAgent, answer: str) -> None:
    send_to(workflow, "press")
    process = workflow.start()
    workflow.rule(answer, "Not before Monday")
    output, _ = process.communicate(timeout=120)
    assert "Not before Monday" in output
    assert workflow.outbox == []


@pytest.mark.parametrize("stand", ["before", "after"])
def test_a_workflow_killed_at_the_effect_does_it_once(workflow: RecipeAgent, stand: str) -> None:
    send_to(workflow, "ada")
    workflow.kill_at(stand)
    assert workflow.outbox == ([] if stand == "before" else ["ada"])
    assert "'result'" in workflow.run()
    assert workflow.outbox == ["ada"]
    (effect,) = workflow.project.list_effects()
    assert effect["state"] == "acknowledged"


@pytest.fixture
def mini(live_server_process: Server, tmp_path: Path) -> Iterator[RecipeAgent]:
    project = make_live_project(live_server_process, f"mini-{next(numbers)}")
    agent = RecipeAgent(tmp_path / "work", "mini-swe-agent", project, key="task-1")
    agent.program = "mini_swe_agent_push"
    program = agent.folder / "git"
    program.write_text('#!/bin/sh\necho "$@" >> pushed\n[ -e slow ] && sleep 30\necho done\n')
    program.chmod(0o755)
    yield agent
    agent.close()


def shell(command: str, call_id: str) -> dict[str, Any]:
    return call("bash", call_id, command=command)


def list_pushes(agent: RecipeAgent) -> list[str]:
    file = agent.folder / "pushed"
    return file.read_text().splitlines() if file.exists() else []


def test_commands_are_mapped_and_acknowledged(mini: RecipeAgent) -> None:
    mini.script([shell("echo one", "call-1")], [shell("ls /none", "call-2")], "Ready")
    assert mini.run().strip() == "Ready"
    assert "one" in mini.results[0]
    effects = mini.project.list_effects()
    assert [effect["tool"] for effect in effects][:2] == ["shell.read", "shell.read"]
    assert [effect["outcome"] for effect in effects] == ["ok", "error", "ok"]


def test_a_held_push_waits_without_a_process_and_runs_once(mini: RecipeAgent) -> None:
    mini.script([shell("echo one", "call-1"), shell(PUSH, "call-2")], "Ready")
    output = mini.run()
    gate = mini.project.wait_for_gate()
    assert gate["id"] in output
    assert list_pushes(mini) == []
    assert gate["id"] in mini.run()  # nobody has decided
    mini.project.rule()
    assert mini.run().strip() == "Ready"
    assert list_pushes(mini) == PUSHED
    assert "one" in mini.results[0]  # not run again: the stored output
    tools = [(effect["tool"], effect["attempt"]) for effect in mini.project.list_effects()]
    assert tools[:2] == [("shell.read", 1), ("git.push", 1)]


def test_a_refused_push_is_answered_with_the_words_of_the_reviewer(mini: RecipeAgent) -> None:
    mini.script([shell(PUSH, "call-1")], "Then not")
    mini.run()
    mini.project.rule("deny", reason="the release is frozen")
    assert mini.run().strip() == "Then not"
    assert "the release is frozen" in mini.results[0]
    assert list_pushes(mini) == []


@pytest.mark.parametrize("stand", ["before", "after", "turn-1"])
def test_a_killed_command_is_not_run_again_unless_it_never_began(
    mini: RecipeAgent, stand: str
) -> None:
    mini.script([shell(PUSH, "call-1")], "Ready")
    mini.run()
    mini.project.rule()
    mini.kill_at(stand)
    pushed = list_pushes(mini)
    assert mini.run().strip() == "Ready"
    assert list_pushes(mini) == pushed
    (push, *_) = mini.project.list_effects()
    if stand == "turn-1":
        assert (push["state"], push["outcome"]) == ("acknowledged", "ok")
        assert pushed == PUSHED
    else:  # nobody but a person can know whether it happened
        assert push["state"] == "dispatched"
        assert "no result was reported" in mini.results[0]


def test_without_gatebook_no_command_runs(mini: RecipeAgent) -> None:
    mini.script([shell(PUSH, "call-1")], "Then not")
    mini.kill_at("turn-1", GATEBOOK_TOKEN=f"gbk_aaaaaaaa_{'b' * 43}")
    assert "token" in mini.results[0]
    assert list_pushes(mini) == []
