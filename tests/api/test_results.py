"""The agent that planned an effect reads the stored result."""

from collections.abc import Callable
from typing import Any

import pytest

from accounts.models import Agent
from journal.erasures import erase_body
from journal.models import Entry
from ledger.models import Effect
from tests.api.api_client import Caller, code
from tests.rows_with_entries import change_agents

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def effect(agent: Caller) -> dict[str, Any]:
    agent.session(mode="one_shot")
    return agent.plan()


def read(agent: Caller, effect: dict[str, Any]) -> dict[str, Any]:
    answer = agent.get(f"/effects/{effect['id']}/result")
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def test_there_is_no_result_before_a_report(agent: Caller, effect: dict[str, Any]) -> None:
    path = f"/effects/{effect['id']}/result"
    assert code(agent.get(path)) == (409, "NO_RESULT")
    agent.dispatch(effect)
    refused = agent.get(path)
    assert code(refused) == (409, "NO_RESULT")
    assert "no report yet" in refused.json()["detail"]


@pytest.mark.parametrize("result", [{"ids": [2**70, "☃"]}, "text", 0, False, [None]])
def test_the_result_is_returned_as_it_was_stored(
    agent: Caller, effect: dict[str, Any], result: object
) -> None:
    agent.dispatch(effect)
    body = {"attempt": 1, "outcome": "ok", "result": result, "external_reference": "m-1"}
    assert agent.post(f"/effects/{effect['id']}/acknowledge", body).status_code == 200
    stored = read(agent, effect)
    assert stored["result"] == result
    assert (stored["stored"], stored["redacted"]) == ("result", False)
    assert (stored["outcome"], stored["attempt"], stored["external_reference"]) == ("ok", 1, "m-1")


def test_a_secret_in_it_is_a_mark(agent: Caller, effect: dict[str, Any]) -> None:
    agent.dispatch(effect)
    body = {"attempt": 1, "outcome": "ok", "result": {"token": SECRET}}
    agent.post(f"/effects/{effect['id']}/acknowledge", body)
    stored = read(agent, effect)
    assert stored["redacted"]
    assert stored["result"]["token"].startswith("[redacted:")


def test_an_erased_result_is_said_so(agent: Caller, effect: dict[str, Any]) -> None:
    agent.dispatch(effect)
    body = {"attempt": 1, "outcome": "ok", "result": "private"}
    agent.post(f"/effects/{effect['id']}/acknowledge", body)
    entry = Entry.objects.get(kind="effect.acknowledged")
    erase_body(entry.project, entry.position, reason="ticket 1", actor="tests", now_us=1)
    stored = read(agent, effect)
    assert (stored["stored"], stored["outcome"]) == ("erased", "ok")
    assert "result" not in stored


def test_a_failure_has_its_reason_and_detail(agent: Caller, effect: dict[str, Any]) -> None:
    agent.dispatch(effect)
    body = {"attempt": 1, "reason": "timeout", "detail": "no answer in 30 s"}
    agent.post(f"/effects/{effect['id']}/fail", body)
    stored = read(agent, effect)
    assert (stored["reason"], stored["detail"]) == ("timeout", "no answer in 30 s")
    assert (stored["outcome"], stored["stored"]) == ("unknown", "none")


def test_of_several_attempts_the_acknowledged_one_counts(
    agent: Caller, effect: dict[str, Any]
) -> None:
    agent.dispatch(effect)
    agent.fail(effect, "rejected")
    again = agent.plan()
    agent.dispatch(again)
    body = {"attempt": 2, "outcome": "ok", "result": "second"}
    agent.post(f"/effects/{effect['id']}/acknowledge", body)
    assert (read(agent, effect)["attempt"], read(agent, effect)["result"]) == (2, "second")


def test_another_agent_is_refused_also_in_the_same_team(
    agent: Caller, effect: dict[str, Any], call: Callable[..., Caller], stranger: Caller
) -> None:
    agent.dispatch(effect)
    agent.acknowledge(effect)
    other = call("other")
    change_agents(Agent.objects.filter(name__in=("tester", "other")), team="mail")
    assert code(other.get(f"/effects/{effect['id']}/result")) == (403, "OTHER_AGENT")
    assert other.get(f"/effects/{effect['id']}/plan").status_code == 404
    assert code(stranger.get(f"/effects/{effect['id']}/result")) == (404, "not_found")


def test_a_reported_result_is_read_too(agent: Caller) -> None:
    facts: list[dict[str, Any]] = [
        {"id": "1", "kind": "effect.planned", "session": "r", "effect_key": "k", "tool": "t"},
        {"id": "2", "kind": "effect.dispatched", "session": "r", "effect_key": "k"},
        {
            "id": "3",
            "kind": "effect.acknowledged",
            "session": "r",
            "effect_key": "k",
            "outcome": "error",
            "result": {"exit_code": 3},
        },
    ]
    assert agent.report(facts).json()["accepted"] == 3
    stored = read(agent, {"id": Effect.objects.get().id})
    assert (stored["outcome"], stored["result"]) == ("error", {"exit_code": 3})
