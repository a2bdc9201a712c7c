"""`meta` of sessions and effects: stored, shown, merged, and never compared."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from journal import sent_meta
from journal.erasures import erase_body
from journal.models import Entry
from sessions.models import Session
from tests.api.api_client import Caller, code
from tests.recovery.test_leases_fence import plan_of

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def session_meta(agent: Caller, key: str = "s-1") -> dict[str, Any]:
    meta: dict[str, Any] = agent.get(f"/sessions/{key}").json()["meta"]
    return meta


def effect_meta(agent: Caller, effect: dict[str, Any]) -> dict[str, Any]:
    meta: dict[str, Any] = agent.get(f"/effects/{effect['id']}").json()["meta"]
    return meta


def test_later_sends_add_keys_and_replace_values_and_conflict_with_nothing(agent: Caller) -> None:
    agent.session(meta={"cwd": "/a", "pid": 2**63})
    assert session_meta(agent) == {"cwd": "/a", "pid": 2**63}
    agent.session(meta={"cwd": "/b", "note": {"deep": [1]}})
    assert session_meta(agent) == {"cwd": "/b", "pid": 2**63, "note": {"deep": [1]}}
    entries = Entry.objects.count()
    agent.session(meta={"cwd": "/b"})
    agent.session()
    assert Entry.objects.count() == entries, "what is known is not recorded again"
    assert Entry.objects.filter(kind="session.described", lane="command").count() == 1


def test_meta_and_call_ids_are_found_by_index(agent: Caller) -> None:
    session = agent.session(meta={"cwd": "/a"})
    effect = agent.plan(call_id="c1")
    reads: list[tuple[str, Callable[[], object]]] = [
        ("entry_of_description", lambda: sent_meta.load_session_meta(session["id"])),
        ("entry_by_effect", lambda: sent_meta.load_effect_meta(effect["id"])),
        # PostgreSQL takes any index of the session while the table has a few rows.
        (
            "effect_by_call" if connection.vendor == "sqlite" else "effect_",
            lambda: agent.get("/effects/s-1;call_id=c1"),
        ),
    ]
    for index, read in reads:
        with CaptureQueriesContext(connection) as ran:
            read()
        plans = [
            plan_of(query["sql"]) for query in ran.captured_queries if "SELECT" in query["sql"]
        ]
        assert any(index in plan for plan in plans), (index, plans)


def test_labels_and_meta_are_added_by_one_entry(agent: Caller) -> None:
    agent.session(labels={"team": "core"})
    agent.session(labels={"team": "core", "host": "a"}, meta={"pid": 1})
    assert Session.objects.get().labels == {"team": "core", "host": "a"}
    assert session_meta(agent) == {"pid": 1}
    entry = Entry.objects.get(kind="session.described")
    assert entry.facts == '{"labelled":true}'


def test_meta_of_an_effect_is_outside_the_intent(agent: Caller) -> None:
    agent.session()
    first = agent.plan(meta={"cwd": "/a"})
    again = agent.plan(meta={"cwd": "/b", "transcript": "t.jsonl"})
    assert (again["id"], again["intent_digest"]) == (first["id"], first["intent_digest"])
    assert effect_meta(agent, first) == {"cwd": "/b", "transcript": "t.jsonl"}
    assert agent.get(f"/effects/{first['id']}/plan").json()["meta"] == {"cwd": "/a"}


@pytest.mark.parametrize("kind", ["session", "effect"])
def test_a_large_meta_is_refused(agent: Caller, kind: str) -> None:
    agent.session()
    fits = {"text": "x" * (sent_meta.META_BYTES - len('{"text":""}'))}
    if kind == "session":
        assert agent.post("/sessions", {"key": "s-1", "meta": fits}).status_code == 200
        answer = agent.post("/sessions", {"key": "s-1", "meta": fits | {"more": 1}})
    else:
        assert effect_meta(agent, agent.plan(meta=fits)) == fits
        body = {"session": "s-1", "effect_key": "e-2", "tool": "t", "meta": fits | {"more": 1}}
        answer = agent.post("/effects", body)
    assert code(answer) == (422, "meta_too_large")
    assert answer.json()["pointer"] == "/meta"


@pytest.mark.parametrize("meta", ["text", [1], 7])
def test_meta_is_an_object(agent: Caller, meta: object) -> None:
    assert agent.post("/sessions", {"key": "s", "meta": meta}).status_code == 422


def test_of_all_sends_the_latest_keys_that_fit_are_shown() -> None:
    half = {"text": "x" * (sent_meta.META_BYTES // 2)}
    merged = sent_meta.merge_sends([{"first": half}, {"second": half}, {"third": 1}])
    assert set(merged) == {"second", "third"}
    assert sent_meta.merge_sends([{"a": 1, "b": 1}, {"a": 2}]) == {"a": 2, "b": 1}


def test_secrets_are_redacted_and_erasure_removes_what_an_entry_brought(agent: Caller) -> None:
    agent.session(meta={"token": SECRET, "cwd": "/a"})
    agent.session(meta={"cwd": "/b"})
    assert session_meta(agent)["token"].startswith("[redacted:")
    started = Entry.objects.get(kind="session.started")
    erase_body(started.project, started.position, reason="ticket", actor="tests", now_us=1)
    assert session_meta(agent) == {"cwd": "/b"}


def test_reported_meta_is_read_and_claims_are_not(
    agent: Caller, call: Callable[..., Caller]
) -> None:
    described = {"kind": "session.described", "session": "s-1"}
    agent.session(meta={"cwd": "/a"})
    agent.report([{"id": "1", **described, "meta": {"pid": 1}}])
    assert session_meta(agent) == {"cwd": "/a", "pid": 1}
    call("other").report([{"id": "1", **described, "meta": {"pid": 2}}])
    assert session_meta(agent) == {"cwd": "/a", "pid": 1}
    large = {"id": "2", **described, "meta": {"x": "y" * sent_meta.META_BYTES}}
    assert agent.report([large]).json()["results"][0]["code"] == "meta_too_large"
    plan = {"id": "3", "kind": "effect.planned", "session": "s-1", "effect_key": "k", "tool": "t"}
    agent.report([plan | {"meta": {"cwd": "/c"}}])
    effect = agent.get("/effects", session="s-1").json()["items"][0]
    assert effect_meta(agent, effect) == {"cwd": "/c"}
