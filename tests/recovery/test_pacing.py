"""Capacity: reports of agents, and plans (only plans) that they pace."""

from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext

from db import raw_sql
from journal.models import Entry
from ledger.models import Effect
from ledger.tools import cache
from sessions import capacity
from sessions.models import Capacity, Session
from tests.api.api_client import Caller, code, new_key

LITTLE: dict[str, Any] = {"context_left_tokens": 1_200, "context_total_tokens": 200_000}
ENOUGH: dict[str, Any] = {"context_left_tokens": 90_000, "context_total_tokens": 200_000}


def report_capacity(agent: Caller, **fields: Any) -> dict[str, Any]:
    answer = agent.post("/capacity", fields)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def try_plan(agent: Caller, effect_key: str, session: str = "s-1", **fields: Any) -> Any:
    body = {
        "session": session,
        "effect_key": effect_key,
        "tool": "git.push",
        "arguments": {"ref": effect_key},
    }
    return agent.post("/effects", body | fields)


def test_a_plan_is_paced_at_low_capacity_and_open_effects_are_not(
    agent: Caller,
) -> None:
    agent.session()
    planned, running = agent.plan("e-1"), agent.plan("e-2", arguments={"n": 2})
    agent.dispatch(running)
    assert report_capacity(agent, session="s-1", **LITTLE)["paced_for"] == "context"
    before = Entry.objects.count(), Effect.objects.count()
    refused = try_plan(agent, "e-3")
    assert code(refused) == (429, "PACED")
    assert 1 <= int(refused.headers["Retry-After"]) <= capacity.MAX_RETRY_AFTER_S
    assert (Entry.objects.count(), Effect.objects.count()) == before
    assert Session.objects.get().effect_count == 2
    # Existing effects are answered, dispatched, acknowledged and failed; a compensation is paced
    # like a plan.
    assert agent.plan("e-1")["answer"] == "proceed"
    agent.dispatch(planned)
    agent.acknowledge(planned)
    agent.fail(running, "rejected")
    undo = agent.post(
        f"/effects/{planned['id']}/compensate", {"tool": "git.undo", "effect_key": "u-1"}
    )
    assert code(undo) == (429, "PACED")


def test_a_new_report_of_enough_capacity_ends_the_pacing_at_once(agent: Caller) -> None:
    agent.session()
    report_capacity(agent, session="s-1", **LITTLE)
    key = new_key()
    body = {"session": "s-1", "effect_key": "e-1", "tool": "git.push", "arguments": {}}
    assert code(agent.post("/effects", body, key=key)) == (429, "PACED")
    assert report_capacity(agent, session="s-1", **ENOUGH)["paced"] is False
    assert (
        agent.post("/effects", body, key=key).status_code == 201
    )  # a refused plan has not used up its key


@pytest.mark.parametrize(
    ("report", "paced"),
    [
        ({"context_left_tokens": capacity.MIN_CONTEXT_TOKENS}, False),
        ({"context_left_tokens": capacity.MIN_CONTEXT_TOKENS - 1}, True),
        ({"context_left_tokens": 10_000, "context_total_tokens": 200_000}, False),
        ({"context_left_tokens": 9_999, "context_total_tokens": 200_000}, True),
        ({"time_left_s": capacity.MIN_TIME_LEFT_S - 1}, True),
        ({"time_left_s": 3600}, False),
        ({"queue": capacity.MAX_QUEUE}, False),
        ({"queue": capacity.MAX_QUEUE + 1}, True),
        ({"context_total_tokens": 200_000}, False),
    ],
)
def test_the_thresholds_match_the_documentation(
    agent: Caller, report: dict[str, int], paced: bool
) -> None:
    agent.session()
    assert report_capacity(agent, **report)["paced"] is paced
    assert try_plan(agent, "e-1").status_code == (429 if paced else 201)


def test_a_stale_report_paces_nothing_and_time_left_counts_down(agent: Caller) -> None:
    with time_machine.travel("2026-03-01T12:00:00Z", tick=False) as clock:
        agent.session()
        report_capacity(agent, time_left_s=capacity.MIN_TIME_LEFT_S + 100)
        clock.shift(99)
        assert try_plan(agent, "e-1").status_code == 201
        clock.shift(2)
        assert code(try_plan(agent, "e-2")) == (429, "PACED")
        clock.shift(capacity.CAPACITY_FRESH_S - 101)
        assert try_plan(agent, "e-2").status_code == 201


def test_only_the_reported_agent_and_session_are_paced(
    agent: Caller, call: Callable[..., Caller]
) -> None:
    other = call("other")
    agent.session("s-1")
    agent.session("s-2")
    report_capacity(agent, session="s-1", **LITTLE)
    assert try_plan(agent, "e-1", "s-2").status_code == 201
    assert try_plan(other, "e-1", "s-1").status_code == 201
    assert code(try_plan(agent, "e-2", "s-1")) == (429, "PACED")
    report_capacity(agent, **ENOUGH)  # a later report for all its sessions
    assert try_plan(agent, "e-2", "s-1").status_code == 201


def test_the_latest_report_is_kept_once_and_every_one_is_in_the_journal(
    agent: Caller, stranger: Caller
) -> None:
    agent.session()
    for queue in (1, 2, 3):
        report_capacity(agent, session="s-1", queue=queue)
    report_capacity(agent, queue=7)
    assert set(Capacity.objects.values_list("queue", flat=True)) == {3, 7}
    assert Capacity.objects.count() == 2
    assert Entry.objects.filter(kind="capacity.reported").count() == 4
    items = agent.get("/capacity").json()["items"]
    assert [(item["agent"], item["queue"], item["fresh"]) for item in items] == [
        ("tester", 7, True),
        ("tester", 3, True),
    ]
    assert [item["queue"] for item in agent.get("/capacity", session="s-1").json()["items"]] == [3]
    assert stranger.get("/capacity").json()["items"] == []


def test_an_empty_or_invalid_capacity_report_is_refused(agent: Caller) -> None:
    assert code(agent.post("/capacity", {})) == (422, "invalid")
    assert code(agent.post("/capacity", {"queue": -1})) == (422, "invalid")
    assert code(agent.post("/capacity", {"queue": 1, "session": "none"})) == (404, "not_found")
    assert code(agent.client.get("/capacity?agent=nobody")) == (422, "agent_unknown")
    assert not Capacity.objects.exists()


def test_capacity_adds_no_statement_to_a_plan(
    agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "CACHE_S", 3600)  # a slow machine may need seconds between two plans
    texts: list[str] = []
    run = raw_sql._run

    def record(database: Any, text: str, parameters: Any) -> Any:
        texts.append(text)
        return run(database, text, parameters)

    monkeypatch.setattr(raw_sql, "_run", record)

    def statements(effect_key: str) -> int:
        texts.clear()
        with CaptureQueriesContext(connection) as queries:
            agent.plan(effect_key, arguments={"n": effect_key})
        return len(texts) + len(queries)

    agent.session()
    statements("warm")
    silent = statements("e-1")
    report_capacity(agent, **ENOUGH)
    assert statements("e-2") == silent
    assert not [
        text for text in texts if "agent_sessions_capacity" in text and "ledger_stop" not in text
    ]
