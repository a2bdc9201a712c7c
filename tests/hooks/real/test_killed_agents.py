"""The hooks of the real coding agents after many SIGKILLs: nothing is lost or done twice.

`TESTS_KILLS` is the number of kills of each agent; `make test-agents` sets it to 20.
"""

import json
import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.config.server import Server
from tests.hooks.real.connected_agents import AGENTS, ConnectedAgent, open_agent
from tests.hooks.real.installed_agents import wait_until
from tests.hooks.real.live_project import make_live_project

KILLS = int(os.environ.get("TESTS_KILLS", "3"))
SLOW = '#!/bin/sh\nsleep 0.3\necho "$@" >> done\nsleep 0.3\necho ready\n'
# How much of its run an agent gets: up to the plan, up to the effect, or past its end.
MOMENTS = ("planned", "done", "later")


@pytest.fixture(params=list(AGENTS))
def agent(
    request: pytest.FixtureRequest, live_server_process: Server, tmp_path: Path
) -> Iterator[ConnectedAgent]:
    project = make_live_project(live_server_process, f"killed-{uuid.uuid4().hex[:8]}")
    with open_agent(request.param, project, tmp_path) as agent:
        (agent.work / "npm").write_text(SLOW)
        yield agent


def find_newest(agent: ConnectedAgent) -> int:
    """Return the number in the handle of the newest effect."""
    items = agent.project.list_effects(limit="1")  # the newest
    return int(items[0]["handle"][2:]) if items else 0


def list_states(agent: ConnectedAgent, tag: str) -> list[str]:
    """Return the states of the calls of one round, oldest first."""
    code = (
        "import json; from journal.models import Entry; from ledger.models import Effect;"
        " from accounts.models import Project;"
        f" project = Project.objects.get(name={agent.project.name!r}); print(json.dumps([e.state"
        " for e in Effect.objects.filter(project=project, tool='npm.publish')"
        ".exclude(state='superseded').order_by('opened_position')"
        f" if {tag!r} in Entry.objects.get(position=e.opened_position).body.text]))"
    )
    states: list[str] = json.loads(agent.project.server.run(code))
    return states


def kill_and_repeat(agent: ConnectedAgent, tag: str, moment: str, delay_s: float) -> str:
    """Kill the agent in a call, let its model repeat the call, and return what became of both."""
    command = f"./npm publish --tag {tag}"
    newest, executed = find_newest(agent), len(agent.list_done())
    process = agent.start(command)
    if moment == "done":
        wait_until(lambda: len(agent.list_done()) > executed)
    else:
        wait_until(lambda: find_newest(agent) > newest)
    time.sleep(delay_s)
    agent.kill(process, lambda: True)
    time.sleep(1)  # what outlives the agent ends
    agent.run(command)
    answer = agent.list_results()[-1]
    published = [line for line in agent.list_done() if line.endswith(tag)]
    states = list_states(agent, tag)
    outcome = f"{moment}: {len(published)} executed, {' and '.join(states)}"
    if set(states) == {"acknowledged"}:
        # A call that ended before the kill was acknowledged, and the next one is another call.
        assert len(published) == len(states), outcome
    else:
        assert states == ["dispatched"], outcome
        assert len(published) <= 1, outcome
        assert "no result was reported" in answer, answer
    return outcome


def test_nothing_is_lost_or_done_twice(agent: ConnectedAgent) -> None:
    assert agent.connect("--no-test").returncode == 0
    agent.run("echo begin", resumes=False)
    chance = random.Random(20)
    counts: Counter[str] = Counter()
    for number in range(KILLS):
        moment = MOMENTS[number % len(MOMENTS)]
        delay_s = chance.uniform(0, 2.5 if moment == "later" else 0.4)
        # No tag is a part of another one.
        counts[kill_and_repeat(agent, f"round{number:03}", moment, delay_s)] += 1
        (agent.home / "counts.json").write_text(json.dumps(counts, indent=1))  # to be read
    assert agent.project.count_violations() == 0
