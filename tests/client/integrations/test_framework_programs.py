"""The programs of docs/how-to with real frameworks and a real server, killed at any step.

Six processes of each framework are killed, and twenty by `make test-agents` (TESTS_KILLS).
"""

import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.client.integrations.mail_project import PYTHON, MailAgent, call, make_mail_project
from tests.config.server import Server
from tests.evaluation.test_demo_agent import rule

PAGES = ["pydantic-ai", "openai-agents", "langgraph", "mcp-session", "inspect", "claude-agent-sdk"]
pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        not PYTHON.exists(), reason="the frameworks are not installed; `make test-agents` does that"
    ),
]
numbers = itertools.count()
# Where a process is killed, and what is added to the ids of calls after that.
STEPS = list(itertools.product(["before", "after", "turn-1"], ["", "-again"]))
KILLS = int(os.environ.get("TESTS_KILLS", len(STEPS)))
TO_ADA = call("send_mail", "call-1", to="ada", text="Good morning")
TO_PRESS = call("send_mail", "call-2", to="press", text="It is done")


@pytest.fixture(params=PAGES)
def agent(
    request: pytest.FixtureRequest, live_server_process: Server, tmp_path: Path
) -> Iterator[MailAgent]:
    project = make_mail_project(live_server_process, f"mail-{next(numbers)}", tmp_path)
    agent = MailAgent(tmp_path / "work", request.param, project)
    yield agent
    agent.close()


def test_a_call_that_is_permitted_is_recorded_and_done_once(agent: MailAgent) -> None:
    agent.script([TO_ADA], "Done")
    assert agent.run().strip() == "Done"
    (effect,) = agent.project.list_effects()
    assert (effect["tool"], effect["call_id"]) == ("mail.send", "call-1")
    assert (effect["state"], effect["outcome"]) == ("acknowledged", "ok")
    assert agent.results == ["sent to ada"]
    (stored,) = agent.project.load_results()
    assert "sent to ada" in str(stored)
    assert agent.outbox == ["ada"]


def test_a_held_call_waits_without_a_process_and_is_done_after_its_approval(
    agent: MailAgent,
) -> None:
    agent.script([TO_PRESS], "Done")
    output = agent.run()
    gate = agent.project.wait_for_gate()
    assert gate["page"] in output
    assert agent.outbox == []
    assert gate["page"] in agent.run()  # nothing was decided, so nothing happens
    assert (agent.outbox, agent.list_states()) == ([], ["planned"])
    agent.rule("approve")
    assert agent.run().strip() == "Done"
    assert (agent.outbox, agent.results) == (["press"], ["sent to press"])
    assert agent.project.count_violations() == 0


@pytest.mark.parametrize("answer", ["deny", "request_changes"])
def test_the_model_gets_the_words_of_the_reviewer_who_refuses(
    agent: MailAgent, answer: str
) -> None:
    agent.script([TO_PRESS], "Then not")
    agent.run()
    agent.rule(answer, "Not before Monday")
    assert agent.run().strip() == "Then not"
    (result,) = agent.results
    assert "Not before Monday" in result
    assert agent.outbox == []


def test_parallel_calls_are_held_apart_and_those_permitted_are_not_repeated(
    agent: MailAgent,
) -> None:
    others = [call("send_mail", f"call-{name}", to=name, text="Hello") for name in ("bob", "eve")]
    agent.script([TO_ADA, TO_PRESS, *others], "Done")
    agent.run()
    assert sorted(agent.outbox) == ["ada", "bob", "eve"]
    agent.rule("approve")
    assert agent.run().strip() == "Done"
    assert sorted(agent.outbox) == ["ada", "bob", "eve", "press"]
    assert sorted(agent.results) == [f"sent to {name}" for name in ("ada", "bob", "eve", "press")]
    assert agent.list_states() == ["acknowledged"] * 4


@pytest.mark.parametrize("page", PAGES)
def test_processes_killed_at_any_step_lose_and_double_nothing(
    page: str, live_server_process: Server, tmp_path: Path
) -> None:
    project = make_mail_project(live_server_process, f"mail-{next(numbers)}", tmp_path)

    def kill_and_resume(number: int) -> Counter[str]:
        stand, fresh = STEPS[number % len(STEPS)]
        agent = MailAgent(tmp_path / f"{number}", page, project, key=f"mail-{number}")
        try:
            agent.script([TO_ADA], "Done")
            agent.kill_at(stand)
            assert agent.outbox == ([] if stand == "before" else ["ada"])
            if fresh:  # the conversation is lost, and the model asks again under a new id
                for path in agent.folder.glob(f"{agent.key}.*"):
                    path.unlink()
            assert agent.run(FRESH=fresh).strip() == "Done"
            assert len(agent.results) == 1
            done = len(agent.outbox)
        finally:
            agent.close()
        return Counter(killed=1, lost=int(done == 0), doubled=max(done - 1, 0))

    with ThreadPoolExecutor(4) as pool:
        figures = sum(pool.map(kill_and_resume, range(KILLS)), Counter())
    states = Counter(
        "done" if effect.get("outcome") == "ok" else effect["state"]
        for effect in project.list_effects(limit="200")
        if effect["state"] != "superseded"
    )
    assert (figures, states) == ({"killed": KILLS}, {"done": KILLS})


def test_what_was_done_in_earlier_turns_is_not_repeated_after_a_crash(agent: MailAgent) -> None:
    agent.script([TO_ADA], [call("send_mail", "call-3", to="bob", text="Hello")], "Done")
    agent.kill_at("turn-2")
    assert agent.outbox == ["ada", "bob"]
    assert agent.run(FRESH="-again").strip() == "Done"
    assert agent.outbox == ["ada", "bob"]
    assert agent.list_states() == ["acknowledged"] * 2


def test_a_process_killed_after_the_approval_is_followed_by_exactly_one(agent: MailAgent) -> None:
    agent.script([TO_PRESS], "Done")
    agent.run()
    agent.rule("approve")
    agent.kill_at("after")
    assert agent.run().strip() == "Done"
    assert agent.outbox == ["press"]
    assert agent.project.count_violations() == 0


def test_without_gatebook_no_tool_is_called(agent: MailAgent) -> None:
    agent.script([TO_ADA], "Done")
    # An evaluation of Inspect ends well, and has an error in place of the sample.
    output = agent.run(ok=agent.page == "inspect", GATEBOOK_TOKEN="gbk_wrong")
    assert "401" in output
    assert agent.marks in ([], ["turn-0"])
    assert agent.outbox == []


def rule_on_every_gate(agent: MailAgent) -> int:
    """Approve all gates that wait; return their number."""
    gates = agent.project.agent.get("/gates").json()["items"]
    waiting = [gate["id"] for gate in gates if gate["status"] == "pending"]
    for gate in waiting:
        rule(agent.project.server, gate, f"{agent.project.name}-guy", "approve", "agreed")
    return len(waiting)


@pytest.mark.parametrize("agent", ["claude-agent-sdk"], indirect=True)
def test_of_two_held_calls_in_one_turn_the_second_is_made_again(agent: MailAgent) -> None:
    """Claude Code keeps one deferred call; the model reads that the other one waits."""
    other = {"to": "press", "text": "And a photo"}
    first = [TO_PRESS, call("send_mail", "call-3", **other)]
    agent.script(first, [call("send_mail", "call-4", **other)], "Done")
    output = agent.run()
    assert output.count("/approvals/") == 2
    assert (agent.outbox, agent.list_states()) == ([], ["planned"] * 2)
    assert rule_on_every_gate(agent) == 2
    assert agent.run().strip() == "Done"
    assert agent.outbox == ["press", "press"]
    assert agent.list_states() == ["acknowledged"] * 2
    assert agent.project.count_violations() == 0


@pytest.mark.parametrize("agent", ["claude-agent-sdk"], indirect=True)
def test_a_held_call_of_a_subagent_is_done_after_its_approval(agent: MailAgent) -> None:
    """A subagent cannot be put off: its model reads that the call waits, and ends."""
    task = {"description": "Mail", "prompt": "You help with mails. Tell the press."}
    begin = {**task, "subagent_type": "general-purpose"}
    turns = [{"calls": [TO_PRESS]}, {"text": "It waits"}]
    (agent.folder / "subagent.json").write_text(json.dumps(turns))
    agent.script([call("Agent", "agent-1", **begin)], "Not yet")
    output = agent.run()
    assert agent.project.wait_for_gate()["page"] in output
    (effect,) = agent.project.list_effects()
    assert (effect["call_id"], effect["state"], agent.outbox) == ("call-2", "planned", [])
    agent.rule("approve")
    agent.script([call("Agent", "agent-1", **begin)], [call("Agent", "agent-2", **begin)], "Done")
    assert agent.run(FRESH="-again").strip() == "Done"
    assert (agent.outbox, agent.list_states()) == (["press"], ["acknowledged"])
    assert agent.project.count_violations() == 0


@pytest.mark.parametrize("agent", ["langgraph"], indirect=True)
def test_a_graph_works_with_an_async_session_too(agent: MailAgent) -> None:
    agent.script([TO_ADA, TO_PRESS], "Done")
    output = agent.run(ASYNC="1")
    assert agent.project.wait_for_gate()["page"] in output
    agent.rule("approve")
    # Without a checkpoint the graph starts over, and the model asks again under the same ids.
    assert agent.run(ASYNC="1").strip() == "Done"
    assert sorted(agent.outbox) == ["ada", "press"]
