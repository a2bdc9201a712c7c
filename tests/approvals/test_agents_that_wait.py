"""Agents of several kinds wait for people while Gatebook or they restart: each acts once."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.api.api_client import Caller
from tests.approvals.reviewer_process import People
from tests.config.server import ROOT, Copy, Server, serve

RULES = "name: all\nrules:\n  - {id: all, title: Everything, match: {}, outcome: require}\n"
AGENTS = Path(__file__).parent / "agents"


@dataclass
class Agent:
    """A running agent; it prints the ids of effect and gate before it waits."""

    process: Copy
    things: list[tuple[str, str]] = field(default_factory=list)
    is_over: bool = False

    def line(self) -> str:
        return self.process.stdout.readline().strip()

    def waits(self, number: int = 1) -> list[str]:
        """The gates that the agent is about to wait for."""
        for _ in range(number):
            effect, gate = self.line().split()
            self.things.append((effect, gate))
        return [gate for _, gate in self.things]

    def killed(self) -> None:
        if not self.is_over:
            self.process.kill()
            self.process.ended()
            self.is_over = True

    def ended(self) -> list[str]:
        """The words that the agent printed before it ended."""
        status, output = self.process.ended()
        self.is_over = True
        assert status == 0
        return output.split()


@dataclass
class Stage:
    """A server of its own, a process of reviewers, and a file with a line for each act of an
    agent."""

    server: Server
    people: People
    token: str
    world: Path
    stack: ExitStack

    def agent(self, program: str, *arguments: str) -> Agent:
        code = (AGENTS / f"{program}.py").read_text()
        own = (self.server.url, self.token, str(self.world))
        agent = Agent(Copy(self.server.shell, code, *own, *arguments))
        self.stack.callback(agent.killed)
        return agent


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("agents")
    rules = folder / "policies.yaml"
    rules.write_text(RULES)
    with serve(folder, GATEBOOK_THREADS="64") as server:
        server.manage("load_tools", str(ROOT / "evaluation" / "demo_tools.yaml"))
        server.manage("load_policies", str(rules), "--activate", "enforce")
        server.run("import asyncio, http.client, httpx")  # once for all agents
        with People(server) as people, ExitStack() as stack:
            yield Stage(server, people, server.token(), folder / "world", stack)


@pytest.mark.once  # test_waiting.py and test_database_restart.py go to PostgreSQL
@pytest.mark.django_db
def test_each_goes_on_with_the_permission_it_waited_for_and_uses_it_once(stage: Stage) -> None:
    caller = Caller(stage.token, address=stage.server.url)
    caller.session("s-1")
    patient, by_effect, by_gate = (
        stage.agent("loop", key) for key in ("patient", "by-effect", "by-gate")
    )
    paused, many = (
        stage.agent("loop", "heard", "pause"),
        stage.agent("at_once", "m-1", "m-2", "m-3"),
    )
    twice = caller.plan("twice", tool="file.edit", arguments={"line": "twice"})
    gates = [agent.waits()[0] for agent in (patient, by_effect, by_gate, paused)]
    first, second, third = many.waits(3)
    stage.people.rule(gates[3])
    assert paused.line() == "may"
    stage.server.kill()
    for agent in (by_effect, by_gate, paused, many):
        agent.killed()
    stage.people.rule(gates[0])
    stage.people.rule(first)
    stage.server.start()
    again = [
        stage.agent("from_id", "effects", by_effect.things[0][0]),
        stage.agent("from_id", "gates", by_gate.things[0][1]),
        stage.agent("loop", "heard"),
    ]
    both = [stage.agent("from_id", "effects", twice["id"]) for _ in range(2)]
    many_again = stage.agent("at_once", "m-1", "m-2", "m-3")
    assert [agent.waits()[0] for agent in again] == gates[1:]
    assert {agent.waits()[0] for agent in both} == {twice["gate"]["id"]}
    assert set(many_again.waits(3)) == {first, second, third}
    for gate in (*gates[1:3], twice["gate"]["id"], second, third):
        stage.people.rule(gate)
    assert [agent.ended() for agent in (patient, *again)] == [["done"]] * 4
    assert sorted(agent.ended()[0] for agent in both) == ["ALREADY_DISPATCHED", "done"]
    assert many_again.ended() == ["done"] * 3
    things = dict(
        thing for agent in (patient, *again, both[0], many_again) for thing in agent.things
    )
    assert Counter(stage.world.read_text().split()) == dict.fromkeys(things, 1)
    for effect, gate in things.items():
        body = caller.get(f"/effects/{effect}").json()
        assert (body["state"], len(body["attempts"])) == ("acknowledged", 1)
        assert caller.get(f"/gates/{gate}").json()["status"] == "used"
