"""Effects after their end, and how they are read: compensations, withdrawals, one effect, lists."""

from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.db.models.expressions import RawSQL
from pytest_django import Settings

from api.strictjson import parser
from db.clock import now_us
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session
from tests.api.api_client import Caller, code, new_key
from tests.api.test_api_effects import _grant, row, session

__all__ = ["session"]


def test_a_compensation_is_a_separate_effect_and_open_only_once(agent: Caller) -> None:
    effect = agent.plan()
    path = f"/effects/{effect['id']}/compensate"
    undo = {"tool": "git.revert", "effect_key": "undo", "arguments": {}}
    refused = agent.post(path, undo)
    assert code(refused) == (409, "WRONG_STATE")
    agent.dispatch(effect)
    agent.acknowledge(effect)
    key = new_key()
    planned = agent.post(path, undo, key=key)
    assert planned.status_code == 201
    assert agent.post(path, undo, key=key).status_code == 200
    assert row(planned.json()).compensates_id == UUID(effect["id"])
    assert code(agent.post(path, {**undo, "effect_key": "undo-2"})) == (409, "COMPENSATION_OPEN")
    agent.dispatch(planned.json())
    agent.fail(planned.json(), "timeout")  # whether it undid anything is unknown
    assert code(agent.post(path, {**undo, "effect_key": "undo-2"})) == (409, "COMPENSATION_OPEN")
    agent.post(f"/effects/{planned.json()['id']}/acknowledge", {"attempt": 1, "outcome": "ok"})
    assert row(effect).state == "compensated"
    assert agent.get(f"/effects/{effect['id']}").json()["answer"] == "done"
    assert code(agent.post(path, {**undo, "effect_key": "undo-3"})) == (409, "WRONG_STATE")


def test_a_reported_compensation_needs_permission_like_a_new_one(agent: Caller) -> None:
    effect = agent.plan("e")
    path = f"/effects/{effect['id']}/compensate"
    undo = {"tool": "git.revert", "arguments": {}}

    def report(key: str, *more: dict[str, Any]) -> None:
        plan = {"kind": "effect.planned", "compensates": "e", **undo}
        of = {"session": "s-1", "effect_key": key}
        facts = [{"id": f"{key}-{n}", **of, **fact} for n, fact in enumerate([plan, *more])]
        assert agent.report(facts).status_code == 200

    report("reported-1")
    refused = agent.post(
        path, {**undo, "effect_key": "reported-1"}
    )  # the effect did not happen yet
    assert code(refused) == (409, "WRONG_STATE")
    agent.dispatch(effect)
    agent.acknowledge(effect)
    other = agent.post(path, {**undo, "effect_key": "asked", "arguments": {"all": True}})
    assert other.status_code == 201
    for _ in range(2):
        assert code(agent.post(path, {**undo, "effect_key": "reported-1"})) == (
            409,
            "COMPENSATION_OPEN",
        )
    agent.post(f"/effects/{other.json()['id']}/supersede")
    taken = agent.post(path, {**undo, "effect_key": "reported-1"}, key="k")
    assert (taken.status_code, taken.json()["permission"]) == (200, "granted")
    assert agent.post(path, {**undo, "effect_key": "reported-1"}, key="k").status_code == 200
    report(
        "reported-2",
        {"kind": "effect.dispatched"},
        {"kind": "effect.acknowledged", "outcome": "ok"},
    )
    assert row(effect).state == "compensated"
    assert code(agent.post(path, {**undo, "effect_key": "reported-2"})) == (409, "WRONG_STATE")
    assert Effect.objects.filter(compensates=effect["id"], lane="command").count() == 2


def test_only_an_effect_that_has_not_happened_can_be_superseded(agent: Caller) -> None:
    effect = agent.plan("e-1")
    superseded = agent.post(f"/effects/{effect['id']}/supersede")
    assert (superseded.status_code, superseded.json()["state"], superseded.json()["answer"]) == (
        200,
        "superseded",
        "done",
    )
    assert code(agent.post(f"/effects/{effect['id']}/dispatch", _grant(effect)))[0] == 409
    other = agent.plan("e-2")
    agent.dispatch(other)
    refused = agent.post(f"/effects/{other['id']}/supersede")
    assert code(refused) == (409, "WRONG_STATE")
    assert refused.json()["effect"]["state"] == "dispatched"
    agent.fail(other, "rejected")
    assert agent.post(f"/effects/{other['id']}/supersede").json()["state"] == "superseded"


def test_a_withdrawal_counts_as_contact_with_the_agent(agent: Caller) -> None:
    effect = agent.plan()
    session = Session.objects.filter(id=effect["session"])
    session.update(seen_at_us=1)
    agent.post(f"/effects/{effect['id']}/supersede")
    assert session.get().seen_at_us > 1


def test_an_effect_is_read_back_with_its_attempts(agent: Caller) -> None:
    effect = agent.plan()
    agent.dispatch(effect)
    agent.fail(effect, "rejected")
    agent.plan()
    agent.dispatch(effect)
    agent.acknowledge(effect, 2, external_reference="sha")
    body = agent.get(f"/effects/{effect['id']}").json()
    assert [
        (attempt["attempt"], attempt["open"], attempt["outcome"]) for attempt in body["attempts"]
    ] == [
        (1, False, "error"),
        (2, False, "ok"),
    ]
    assert (body["external_reference"], body["answer"]) == ("sha", "done")


def test_a_slow_body_is_received_at_its_end(agent: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, read = [now_us()], parser.read_body

    def slowly(*args: Any, **kwargs: Any) -> bytes:
        raw = read(*args, **kwargs)
        clock[0] += 600_000_000
        return raw

    monkeypatch.setattr("api.endpoint.now_us", lambda: clock[0])
    monkeypatch.setattr(parser, "read_body", slowly)
    assert row(agent.plan()).received_us == clock[0]
    assert agent.report([{"id": "f", "kind": "session.noted", "session": "s-1"}]).status_code == 200
    assert Entry.objects.get(event_id="f").received_us == clock[0]


def test_a_list_that_takes_too_long_is_stopped(
    agent: Caller, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    agent.plan()
    endless = (
        "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n)"
    )
    for path, rows in (("/effects", Effect), ("/sessions", Session)):
        settings.GATEBOOK_SEARCH_TIMEOUT_S = 0.05
        with monkeypatch.context() as patched, transaction.atomic():
            never = rows.objects.annotate(number=RawSQL(endless, [])).filter(number=0)  # noqa: S611
            patched.setattr(rows.objects, "filter", lambda *_, never=never, **__: never)
            refused = agent.get(path)
            transaction.set_rollback(True)  # PostgreSQL accepts no statement after a cancelled one
        assert code(refused) == (503, "unavailable")
        assert refused.headers["retry-after"] == "5"
        settings.GATEBOOK_SEARCH_TIMEOUT_S = 60.0
        assert agent.get(path).status_code == 200


def test_effects_are_listed_by_exact_fields_and_paged(agent: Caller) -> None:
    for number in range(5):
        agent.plan(f"e-{number}", tool=f"tool.{number % 2}", arguments={"n": number})
    page = agent.get("/effects", tool="tool.0").json()
    assert [effect["effect_key"] for effect in page["items"]] == ["e-4", "e-2", "e-0"]
    first = agent.get("/effects", limit=3).json()
    rest = agent.get("/effects", limit=3, after=first["next"]).json()
    assert [effect["effect_key"] for effect in first["items"] + rest["items"]] == [
        f"e-{n}" for n in (4, 3, 2, 1, 0)
    ]
    assert rest["next"] is None
    agent.dispatch(first["items"][0])
    assert [e["effect_key"] for e in agent.get("/effects", state="dispatched").json()["items"]] == [
        "e-4"
    ]
    assert len(agent.get("/effects", session="s-1").json()["items"]) == 5
    assert agent.get("/effects", session="s-2").json()["items"] == []
    agent.acknowledge(first["items"][0], external_reference="abc")
    assert len(agent.get("/effects", external_reference="abc", outcome="ok").json()["items"]) == 1
    assert agent.get("/effects", external_reference="ok").json()["items"] == []
    assert len(agent.get("/effects", effect_key="e-1", session="s-1").json()["items"]) == 1
    assert agent.get("/effects", effect_key="e-1", session="s-2").json()["items"] == []
    assert (
        agent.get("/effects", effect_key="e-1", session="s-1", state="failed").json()["items"] == []
    )
    refused = agent.get("/effects", effect_key="e-1")
    assert (code(refused), refused.json()["pointer"]) == ((422, "session_missing"), "/effect_key")
