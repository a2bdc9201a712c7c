"""The programs of docs/how-to, continued by real runners with the file of docs/how-to/resume.md.

A program waits for people and its process is gone. A person rules, and a runner starts it again.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.client.integrations.mail_project import (
    AGENTS,
    PYTHON,
    MailAgent,
    call,
    make_mail_project,
    read_examples,
)
from tests.client.integrations.test_recipes import PYTHON as RECIPES_PYTHON
from tests.client.integrations.test_recipes import RecipeAgent, send_to
from tests.client.resume_scenario import TOOLS, Scenario
from tests.client.test_pushes import wait_until
from tests.config.server import Server
from tests.evaluation.test_demo_agent import rule

pytestmark = pytest.mark.once
numbers = itertools.count()


@dataclass(frozen=True)
class Program:
    """The program of a page, and the command of docs/how-to/resume.md that continues it."""

    page: str
    python: Path
    command: str
    folder: str
    script: str


GRAPH = Program("langgraph", PYTHON, "mail-graph", "mail", "mail_graph.py")
WORKFLOW = Program("dbos", RECIPES_PYTHON, "news-workflow", "news", "news_workflow.py")


class Waiting:
    """Programs of one page that wait for people, and the runners that continue them."""

    def __init__(self, program: Program, server: Server, folder: Path) -> None:
        self.program = program
        self.project = make_mail_project(server, f"waiting-{next(numbers)}", folder)
        server.run(TOOLS.format(name=self.project.name))
        self.scenario = Scenario(self.project, folder, "resume.yaml")
        example = read_examples("resume", "yaml")[0].replace("/srv/", f"{folder}/")
        (folder / "resume.yaml").write_text(example)
        self.work = folder / program.folder
        self.work.mkdir()
        (self.work / ".venv").symlink_to(program.python.parents[1])
        (self.work / program.script).symlink_to(AGENTS / f"{program.page}_mail.py")
        self.agents: list[MailAgent] = []

    def make_agent(self) -> MailAgent:
        """Return another program, with a key of its own, that has a mail to send to the press."""
        key = f"{self.program.folder}-{len(self.agents)}"
        agent: MailAgent
        if self.program is GRAPH:
            agent = MailAgent(self.work, self.program.page, self.project, key)
            agent.script([call("send_mail", "call-1", to="press", text="It is done")], "Ready")
        else:
            agent = RecipeAgent(self.work, self.program.page, self.project, key)
            agent.program = "dbos_mail"
            send_to(agent, "press")
        self.agents.append(agent)
        return agent

    def wait_for_people(self) -> None:
        """Run a program until it waits, and no process of it lives."""
        agent = self.make_agent()
        if self.program is GRAPH:
            agent.run()
        else:
            agent.kill_at("waiting")
        assert self.list_gates(agent) == ["pending"]
        assert self.list_mails() == []

    def rule(
        self, answer: str = "approve", reason: str = "agreed in INC-204", limit: int = 200
    ) -> None:
        """Let the reviewer rule on the gates that wait, newest first."""
        page = self.project.agent.get("/gates", status="pending", limit=limit)
        for gate in page.json()["items"]:
            person = f"{self.project.name}-guy"
            rule(self.project.server, gate["id"], person, answer, reason)

    def wait_for_ends(self, count: int) -> None:
        """Wait until so many started programs have ended, all of them well."""
        query = "event kind:resume.ended"
        search = self.project.agent.get
        wait_until(lambda: len(search("/search", q=query).json()["rows"]) == count)

    def list_gates(self, agent: MailAgent) -> list[str]:
        """Return the statuses of the gates of a program."""
        gates = self.project.agent.get("/gates").json()["items"]
        return [gate["status"] for gate in gates if gate["session_key"] == agent.key]

    def list_mails(self) -> list[dict[str, Any]]:
        path = self.work / "outbox.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def list_effects(self, tool: str) -> list[dict[str, Any]]:
        return [effect for effect in self.project.list_effects() if effect["tool"] == tool]

    def read_words(self) -> str:
        """Return what the started programs printed, and what their models got."""
        logs = sorted((self.scenario.folder / "state").rglob("*.log"))
        results = self.work / "results.json"
        return "".join(path.read_text() for path in (*logs, results) if path.exists())

    def check_sent(self, printed: str = "") -> None:
        """Check that each program sent its mail once, and that a runner has nothing more to do.

        `printed` is what a program printed that no runner had started.
        """
        assert self.scenario.run_once() == (0, "")
        mails = self.list_mails()
        assert [mail["to"] for mail in mails] == ["press"] * len(self.agents)
        assert len({mail["key"] for mail in mails}) == len(self.agents)
        assert [
            (effect["state"], effect["outcome"], effect["attempt"])
            for effect in self.list_effects("mail.send")
        ] == [("acknowledged", "ok", 1)] * len(self.agents)
        assert [self.list_gates(agent) for agent in self.agents] == [["used"]] * len(self.agents)
        assert "sent to press" in printed + self.read_words()
        assert self.project.count_violations() == 0

    def check_not_sent(self, words: str) -> None:
        """Check that nothing was sent, and that the program got the words of the reviewer."""
        assert words in self.read_words()
        assert self.list_mails() == []
        states = {effect["state"] for effect in self.list_effects("mail.send")}
        assert states <= {"planned", "superseded"}
        assert self.scenario.run_once() == (0, "")

    def close(self) -> None:
        self.scenario.close()
        for agent in self.agents:
            agent.close()


def build_parameter(program: Program) -> Any:
    missing = pytest.mark.skipif(
        not program.python.exists(), reason="its packages are missing; `make test-agents` installs"
    )
    return pytest.param(program, id=program.page, marks=missing)


@pytest.fixture(params=[build_parameter(GRAPH), build_parameter(WORKFLOW)])
def waiting(
    request: pytest.FixtureRequest, live_server_process: Server, tmp_path: Path
) -> Iterator[Waiting]:
    waiting = Waiting(request.param, live_server_process, tmp_path)
    yield waiting
    waiting.close()


@pytest.mark.parametrize("count", [1, 2])
def test_an_approved_mail_is_sent_once_by_all_runners(waiting: Waiting, count: int) -> None:
    waiting.wait_for_people()
    runners = [waiting.scenario.start() for _ in range(count)]
    waiting.rule()
    waiting.wait_for_ends(1)
    printed = "".join(waiting.scenario.stop(runner) for runner in runners)
    assert printed.count(f"started {waiting.program.command}") == 1
    assert f"{waiting.program.command} ended with exit code 0" in printed
    waiting.check_sent()
    (start,) = waiting.list_effects("session.resume")
    assert (start["state"], start["attempt"]) == ("acknowledged", 1)


@pytest.mark.parametrize("answer", ["deny", "deny_session", "request_changes"])
def test_a_refused_program_reads_the_words_and_sends_nothing(waiting: Waiting, answer: str) -> None:
    waiting.wait_for_people()
    runner = waiting.scenario.start()
    waiting.rule(answer, "Not before Monday")
    waiting.wait_for_ends(1)
    assert "ended with exit code 0" in waiting.scenario.stop(runner)
    waiting.check_not_sent("Not before Monday")


def test_programs_that_wait_side_by_side_send_each_mail_once(waiting: Waiting) -> None:
    for _ in range(3):
        waiting.wait_for_people()
    runners = [waiting.scenario.start() for _ in range(2)]
    waiting.rule()
    waiting.wait_for_ends(3)
    printed = "".join(waiting.scenario.stop(runner) for runner in runners)
    assert printed.count("ended with exit code 0") == 3
    waiting.check_sent()


def test_a_program_ends_while_another_goes_on_waiting(waiting: Waiting) -> None:
    waiting.wait_for_people()
    waiting.wait_for_people()
    runner = waiting.scenario.start()
    waiting.rule(limit=1)
    waiting.wait_for_ends(1)
    assert len(waiting.list_mails()) == 1
    waiting.rule()
    waiting.wait_for_ends(2)
    waiting.scenario.stop(runner)
    waiting.check_sent()


def test_an_approval_from_before_the_runner_is_taken_up(waiting: Waiting) -> None:
    waiting.wait_for_people()
    waiting.rule()
    code, printed = waiting.scenario.run_once()
    assert (code, printed.count("started")) == (0, 1), printed
    waiting.check_sent()


def test_a_denial_from_before_the_runner_is_heard_once(waiting: Waiting) -> None:
    waiting.wait_for_people()
    waiting.rule("deny", "Not before Monday")
    code, printed = waiting.scenario.run_once()
    assert (code, printed.count("started")) == (0, 1), printed
    waiting.check_not_sent("Not before Monday")


def test_a_denial_that_its_process_heard_starts_nothing(waiting: Waiting) -> None:
    waiting.wait_for_people()
    waiting.rule("deny", "Not before Monday")
    (agent,) = waiting.agents
    agent.run()
    assert waiting.scenario.run_once() == (0, "")
    assert waiting.list_effects("session.resume") == []


@pytest.mark.parametrize("waiting", [build_parameter(WORKFLOW)], indirect=True)
def test_a_workflow_whose_process_still_polls_sends_once(waiting: Waiting) -> None:
    """Between its polls a workflow has no lease: the runner may start a process beside it."""
    agent = waiting.make_agent()
    process = agent.start()
    waiting.project.wait_for_gate()
    runner = waiting.scenario.start()
    waiting.rule()
    printed, _ = process.communicate(timeout=120)
    assert "sent to press" in printed
    waiting.wait_for_ends(len(waiting.list_effects("session.resume")))
    waiting.scenario.stop(runner)
    waiting.check_sent(printed)  # the runner may have come too late to start one
