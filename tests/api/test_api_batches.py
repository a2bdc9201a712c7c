"""The evidence lane: batches of facts in any order and size, all stored, a status for each."""

import gzip
import json
import random
from typing import Any

import pytest

from journal.models import Body, Entry
from ledger.models import Attempt, Effect
from sessions.models import Item, Session, Task
from tests.api.api_client import Caller, code
from tests.api.sample_facts import STORY, make_items, statuses


def test_a_complete_story_is_stored_and_applied(agent: Caller) -> None:
    answer = agent.report(make_items())
    assert answer.status_code == 200
    assert answer.json()["accepted"] == len(STORY)
    assert [(result["index"], result["id"]) for result in answer.json()["results"]] == [
        (n, f"f-{n}") for n in range(len(STORY))
    ]
    assert set(statuses(answer)) == {"created"}
    assert "gatebook-rejected" not in answer.headers
    session = Session.objects.get(key="s-1")
    assert (session.title, session.status, session.mode) == ("Fix it", "completed", "reported")
    assert session.parent is not None
    assert session.parent.key == "above"
    effect = Effect.objects.get()
    assert (effect.state, effect.outcome, effect.permission, effect.permission_basis) == (
        "acknowledged",
        "ok",
        "observed",
        "observe",
    )
    assert (effect.tool, effect.external_reference, effect.lane) == ("bash", "r", "evidence")
    assert Attempt.objects.get().process == "p"
    assert (Task.objects.get().state, Item.objects.get().state) == ("done", "done")
    entries = Entry.objects.filter(lane="evidence").order_by("position")
    assert [entry.kind for entry in entries] == [fact["kind"] for fact in STORY]
    assert '"result":"a\\u0000b"' in Body.objects.get(entry__kind="effect.acknowledged").text


def test_a_repeated_batch_is_all_duplicates(agent: Caller) -> None:
    agent.report(make_items())
    before = Entry.objects.count()
    again = agent.report(make_items())
    assert (again.status_code, set(statuses(again))) == (200, {"duplicate"})
    assert Entry.objects.count() == before


def test_one_batch_may_hold_an_item_twice(agent: Caller) -> None:
    items = make_items()
    answer = agent.report([*items, items[2], {**items[2], "tool": "other"}])
    assert answer.status_code == 207
    assert statuses(answer)[-2:] == ["duplicate", "conflict"]
    assert Effect.objects.get().tool == "bash"


@pytest.mark.parametrize("seed", range(6))
def test_order_batches_and_repetition_make_no_difference(agent: Caller, seed: int) -> None:
    chance = random.Random(seed)
    facts = [
        *STORY,
        {"kind": "effect.dispatched", "effect_key": "e", "attempt": 2},
        {"kind": "effect.failed", "effect_key": "e", "attempt": 2, "reason": "timeout"},
        {"kind": "effect.planned", "effect_key": "late", "tool": "t"},
        {"kind": "effect.superseded", "effect_key": "late"},
        {"kind": "task.changed", "task": "t", "title": "renamed"},
        {"kind": "task.changed", "task": "t", "title": "renamed again"},
    ]
    items = make_items(facts)
    items += chance.sample(items, 5)
    chance.shuffle(items)
    while items:
        size = chance.randint(1, 4)
        assert agent.report(items[:size]).status_code == 200
        items = items[size:]
    session = Session.objects.get(key="s-1")
    assert (session.title, session.status, session.effect_count) == ("Fix it", "completed", 2)
    effect = Effect.objects.get(effect_key="e")
    assert (effect.state, effect.outcome, effect.attempt_count) == ("acknowledged", "ok", 2)
    assert Effect.objects.get(effect_key="late").state == "superseded"
    assert Task.objects.get().title == "renamed again"


def test_a_bad_item_never_sinks_the_others(agent: Caller) -> None:
    items: list[Any] = make_items()
    items[1] = {**items[1], "task": ""}
    items[3] = {"id": "x", "session": "s-1"}
    items.insert(5, ["no object"])
    items.append({**items[0], "id": "big", "title": "t", "blob": "x" * 262_144})
    answer = agent.report(items)
    assert answer.status_code == 207
    results = statuses(answer)
    assert results == [
        "created",
        "invalid",
        "created",
        "invalid",
        "created",
        "invalid",
        *["created"] * 4,
        "too_large",
    ]
    assert answer.headers["gatebook-rejected"] == "4"
    assert answer.json()["accepted"] == 7
    bad = {
        result["index"]: result
        for result in answer.json()["results"]
        if result["status"] != "created"
    }
    assert (bad[1]["pointer"], bad[1]["code"], bad[1]["retryable"]) == ("/task", "invalid", False)
    assert (bad[3]["id"], bad[5]["code"], bad[5]["id"]) == ("x", "not_an_object", None)
    assert (bad[10]["code"], bad[10]["id"]) == ("item_too_large", "big")
    assert "262144" in bad[10]["detail"]
    assert Entry.objects.filter(lane="evidence").count() == 7


def test_a_conflict_stores_both_items_and_changes_no_state(agent: Caller) -> None:
    items = make_items()
    agent.report(items)
    state = list(Effect.objects.values())
    changed = {**items[4], "outcome": "error"}
    for _ in range(2):
        answer = agent.report([changed])
        assert (answer.status_code, statuses(answer)) == (207, ["conflict"])
        assert answer.json()["results"][0]["code"] == "key_reuse"
        assert answer.headers["gatebook-rejected"] == "1"
    kept = Entry.objects.get(kind="integrity.conflict")
    assert '"outcome":"error"' in Body.objects.get(entry=kept).text
    assert (kept.lane, kept.source) == ("system", "gatebook")
    assert list(Effect.objects.values()) == state


def test_an_atomic_batch_is_stored_completely_or_not_at_all(agent: Caller) -> None:
    items = make_items()
    before = Entry.objects.count()
    bad = agent.report([*items, {"id": "bad", "kind": "bad", "session": "s-1"}], "?atomic=true")
    assert code(bad) == (422, "batch_refused")
    assert bad.json()["accepted"] == 0
    assert [result["status"] for result in bad.json()["results"]][-1] == "invalid"
    assert Entry.objects.count() == before
    assert Session.objects.count() == 0
    assert agent.report(items, "?atomic=true").status_code == 200
    assert agent.report(items, "?atomic=true").status_code == 200  # duplicates are accepted
    conflicting = agent.report(
        [{**items[2], "tool": "x"}, {**items[2], "id": "new"}], "?atomic=true"
    )
    assert code(conflicting) == (422, "batch_refused")
    assert not Entry.objects.filter(event_id="new").exists()
    assert code(agent.report(items, "?atomic=maybe")) == (422, "invalid")
    assert code(agent.report(items, "?atomics=true")) == (422, "parameter_unknown")


@pytest.mark.parametrize("packed", [False, True])
def test_lines_and_gzip_are_read_too(agent: Caller, packed: bool) -> None:
    raw = b"\n".join(json.dumps(item).encode() for item in make_items()) + b"\n\n"
    headers = {"Content_Type": "application/x-ndjson"}
    if packed:
        raw, headers = gzip.compress(raw), {**headers, "Content_Encoding": "gzip"}
    answer = agent.raw("/events", raw, **headers)
    assert (answer.status_code, answer.json()["accepted"]) == (200, len(STORY))


@pytest.mark.parametrize("raw", [b"{}", b"[", b'[{"id":1}', b"7", b'"x"', b"[1 2]", b"nonsense"])
def test_only_an_envelope_that_cannot_be_read_is_400(agent: Caller, raw: bytes) -> None:
    assert code(agent.raw("/events", raw)) == (400, "envelope_unreadable")
    assert Session.objects.count() == 0


def test_an_empty_batch_is_none(agent: Caller) -> None:
    answer = agent.report([])
    assert (answer.status_code, answer.json()) == (200, {"accepted": 0, "results": []})
    assert code(agent.raw("/events", b"")) == (422, "body_empty")


@pytest.mark.parametrize(
    "kind",
    ["bogus", "Effect.planned", "effect.", ".x", "effect.planned.twice", "effect planned", ""],
)
def test_kinds_outside_the_grammar_are_invalid(agent: Caller, kind: str) -> None:
    assert statuses(agent.report([{"id": "k", "kind": kind, "session": "s-1"}])) == ["invalid"]


def test_effect_facts_name_their_effect(agent: Caller) -> None:
    for kind in ("effect.dispatched", "effect.acknowledged", "effect.failed", "effect.superseded"):
        item = {"id": kind, "kind": kind, "session": "s-1", "outcome": "ok", "reason": "error"}
        (result,) = agent.report([item]).json()["results"]
        assert (result["status"], result["code"], result["pointer"]) == (
            "invalid",
            "effect_key_missing",
            "/effect_key",
        )
    assert Effect.objects.count() == 0


# --- limits ---------------------------------------------------------------------------------------------------------


def test_a_batch_holds_a_thousand_items(agent: Caller) -> None:
    items = [
        {
            "id": f"n-{n}",
            "kind": "effect.planned",
            "session": "s",
            "effect_key": f"{n}",
            "tool": "t",
        }
        for n in range(1001)
    ]
    refused = agent.report(items)
    assert code(refused) == (413, "too_many_items")
    assert "1000" in refused.json()["detail"]
    assert Session.objects.count() == 0
    assert agent.report(items[:1000]).json()["accepted"] == 1000
    assert Session.objects.get().effect_count == 1000


@pytest.mark.parametrize("packed", [False, True])
def test_a_batch_is_four_mebibytes_unpacked(agent: Caller, packed: bool) -> None:
    def send(size: int) -> Any:
        item = json.dumps({"id": "n", "kind": "moon.risen", "session": "s", "text": ""}).encode()
        parts = [
            item.replace(b'"n"', b'"%d"' % n).replace(b'""', b'"' + b"x" * 200_000 + b'"')
            for n in range(20)
        ]
        raw = b"[" + b",".join(parts) + b"]"
        raw += b" " * (size - len(raw))
        headers = {"Content_Encoding": "gzip"} if packed else {}
        return agent.raw("/events", gzip.compress(raw, 1) if packed else raw, **headers)

    refused = send(4 * 1024 * 1024 + 1)
    assert code(refused) == (413, "body_too_large")
    assert "4194304" in refused.json()["detail"]
    assert Session.objects.count() == 0
    assert send(4 * 1024 * 1024).json()["accepted"] == 20


def test_an_item_is_a_quarter_of_a_mebibyte(agent: Caller) -> None:
    def send(size: int) -> str:
        item = {"id": f"n-{size}", "kind": "moon.risen", "session": "s", "text": ""}
        raw = json.dumps(item).encode()
        return statuses(
            agent.raw(
                "/events", b"[" + raw.replace(b'""', b'"' + b"x" * (size - len(raw)) + b'"') + b"]"
            )
        )[0]

    assert send(262_144) == "created"
    assert send(262_145) == "too_large"
