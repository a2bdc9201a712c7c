"""Effects in the command lane: every verb's success beside its refusals, and the rows that each leaves."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from django.db.models.expressions import RawSQL
from pytest_django import Settings

from ingest import strict
from journal.clock import now_us
from journal.models import Entry
from ledger.models import Attempt, Effect
from sessions.models import Session
from tests.ingest.caller import Caller, code, new_key
from tests.ingest.rows import text_at


@pytest.fixture(autouse=True)
def session(agent: Caller) -> dict[str, Any]:
    return agent.session("s-1")


def row(effect: dict[str, Any]) -> Effect:
    return Effect.objects.get(id=effect["id"])


def test_a_plan_is_written_down_and_released(agent: Caller) -> None:
    target = {"repository": "acme/x", "ref": "refs/heads/main", "environment": "ci", "resource": "deploy"}
    body = {"session": "s-1", "effect_key": "push", "tool": "git.push", "arguments": {"ref": "main"}, "target": target}
    answer = agent.post("/effects", {**body, "turn": "7", "why": "the tests passed"})
    assert answer.status_code == 201
    told = answer.json()
    assert (told["state"], told["leave"], told["leave_basis"], told["answer"]) == (
        "planned",
        "granted",
        "observe",
        "proceed",
    )
    stored = row(told)
    assert (stored.state, stored.leave, stored.lane, stored.tool) == ("planned", "granted", "command", "git.push")
    assert (stored.turn, stored.environment, stored.resource) == ("7", "ci", "deploy")
    assert stored.repository is not None
    assert stored.repository.name == "acme/x"
    assert stored.intent_digest == told["intent_digest"]
    assert told["intent_digest"].startswith("v1:")
    assert Session.objects.get().effect_count == 1
    assert "the tests passed" in text_at(stored.plan_position)


def test_the_key_is_the_clients_or_made_of_call_intent_and_ordinal(agent: Caller) -> None:
    body = {"session": "s-1", "tool": "bash", "arguments": {"command": "make"}}
    first = agent.post("/effects", {**body, "call_id": "call_1"}).json()
    assert first["effect_key"] == f"call_1:{first['intent_digest'][3:19]}:0"
    second = agent.post("/effects", {**body, "call_id": "call_1", "ordinal": 1, "turn": "t"}).json()
    assert second["effect_key"].endswith(":1")
    assert second["id"] != first["id"]
    refused = agent.post("/effects", body)
    assert code(refused) == (422, "effect_key_missing")
    assert refused.json()["pointer"] == "/effect_key"
    assert Effect.objects.count() == 2


def test_a_plan_asked_again_hears_the_present_answer_and_never_the_stored_one(agent: Caller) -> None:
    key = new_key()
    body = {"session": "s-1", "effect_key": "e", "tool": "bash", "arguments": {}}
    first = agent.post("/effects", body, key=key)
    again = agent.post("/effects", body, key=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert "idempotent-replay" not in again.headers
    effect = first.json()
    agent.dispatch(effect)
    assert agent.post("/effects", body, key=key).json()["answer"] == "ambiguous"
    agent.acknowledge(effect, external_reference="abc")
    done = agent.post("/effects", body, key=key).json()
    assert (done["answer"], done["external_reference"]) == ("done", "abc")
    assert agent.post("/effects", body).json()["answer"] == "done"  # under a new key too
    assert Effect.objects.count() == 1
    assert Session.objects.get().effect_count == 1


def test_an_effect_key_stands_for_one_intent(agent: Caller) -> None:
    effect = agent.plan("e", arguments={"ref": "main"})
    refused = agent.post(
        "/effects", {"session": "s-1", "effect_key": "e", "tool": "git.push", "arguments": {"ref": "x"}}
    )
    assert code(refused) == (422, "key_reuse")
    assert refused.json()["effect"]["id"] == effect["id"]
    assert Entry.objects.filter(kind="integrity.conflict", effect=UUID(effect["id"])).count() == 1
    assert row(effect).intent_digest == effect["intent_digest"]


def test_a_second_open_effect_of_one_intent_is_ambiguous_unless_they_are_siblings(agent: Caller) -> None:
    first = agent.plan("e-1", turn="1")
    sibling = agent.plan("e-2", turn="1")
    assert sibling["answer"] == "proceed"
    other = agent.plan("e-3", turn="2")
    assert (other["answer"], other["leave"]) == ("ambiguous", "held")
    assert other["open_effect"] in (first["id"], sibling["id"])
    assert code(agent.post(f"/effects/{other['id']}/dispatch", _grant(other))) == (409, "NO_LEAVE")
    for effect in (first, sibling):
        agent.dispatch(effect)
        agent.acknowledge(effect)
    assert agent.plan("e-3", turn="2")["answer"] == "proceed"


def test_free_text_is_no_part_of_the_intent(agent: Caller) -> None:
    said = {"command": "make", "description": "build it"}
    first = agent.plan("e", tool="bash", arguments=said, free_text=["description"])
    again = agent.plan("e", tool="bash", arguments={**said, "description": "other"}, free_text=["description"])
    assert first["intent_digest"] == again["intent_digest"]
    body = {"process": "p", "arguments": {**said, "description": "a third"}, "free_text": ["description"]}
    assert agent.post(f"/effects/{first['id']}/dispatch", body).status_code == 200


def _grant(effect: dict[str, Any], process: str = "p-1") -> dict[str, Any]:
    return {"process": process, "intent_digest": effect["intent_digest"]}


def test_a_dispatch_uses_the_leave_and_opens_the_attempt(agent: Caller) -> None:
    effect = agent.plan()
    told = agent.dispatch(effect)
    assert (told["state"], told["leave"], told["attempt"]) == ("dispatched", "used", 1)
    attempt = Attempt.objects.get()
    assert (attempt.remote_key, attempt.process, attempt.is_open) == (told["remote_key"], "p-1", True)
    assert (attempt.lane, attempt.leave) == ("command", "used")
    assert row(effect).deadline_us is not None


def test_a_grant_is_repeated_to_the_very_same_asker_while_the_attempt_is_open(agent: Caller) -> None:
    effect, key = agent.plan(), new_key()
    path = f"/effects/{effect['id']}/dispatch"
    told = agent.dispatch(effect, key=key)
    again = agent.post(path, _grant(effect), key=key)
    assert (again.status_code, again.json()["remote_key"]) == (200, told["remote_key"])
    assert code(agent.post(path, _grant(effect))) == (409, "ALREADY_DISPATCHED")  # another key
    assert code(agent.post(path, {**_grant(effect), "lease_epoch": 2}, key=new_key())) == (409, "ALREADY_DISPATCHED")
    assert code(agent.post(path, _grant(effect, "p-2"), key=key)) == (409, "ALREADY_DISPATCHED")
    assert Attempt.objects.count() == 1
    agent.acknowledge(effect)
    assert code(agent.post(path, _grant(effect), key=key)) == (409, "ALREADY_DISPATCHED")
    assert Attempt.objects.count() == 1


def test_a_dispatch_key_grants_nothing_once_its_attempt_is_closed(agent: Caller) -> None:
    effect, key = agent.plan(), new_key()
    path = f"/effects/{effect['id']}/dispatch"
    agent.dispatch(effect, key=key)
    agent.fail(effect, "rejected")
    assert agent.plan()["leave"] == "granted"  # asked again after a clean rejection
    replayed = agent.post(path, _grant(effect), key=key)
    assert code(replayed) == (409, "ALREADY_DISPATCHED")
    second = agent.dispatch(effect)
    assert second["attempt"] == 2
    assert second["remote_key"] == Attempt.objects.get(number=2).remote_key != Attempt.objects.get(number=1).remote_key
    assert code(agent.post(path, _grant(effect), key=key)) == (409, "ALREADY_DISPATCHED")


def test_a_dispatch_of_other_arguments_is_a_mismatch_that_leaves_a_trace(agent: Caller) -> None:
    effect = agent.plan()
    path = f"/effects/{effect['id']}/dispatch"
    key = new_key()
    for body in (
        {"process": "p", "arguments": {"ref": "other"}},
        {"process": "p", "intent_digest": "v1:" + "0" * 64},
        {"process": "p", "intent_digest": effect["intent_digest"], "arguments": {"ref": "other"}},
    ):
        refused = agent.post(path, body, key=key)
        assert code(refused) == (409, "INTENT_MISMATCH")
        assert refused.json()["effect"]["state"] == "planned"
    assert Entry.objects.filter(kind="integrity.conflict", facts__contains="INTENT_MISMATCH").count() == 3
    assert Attempt.objects.count() == 0
    assert code(agent.post(path, {"process": "p"})) == (422, "intent_missing")
    # A refused command does not consume its key.
    assert agent.post(path, {"process": "p", "arguments": {"ref": "main"}}, key=key).status_code == 200


def test_an_acknowledgement_closes_the_attempt(agent: Caller) -> None:
    effect = agent.plan()
    agent.dispatch(effect)
    told = agent.acknowledge(effect, outcome="error", external_reference="https://x.example/1", result={"exit": 3})
    assert (told["state"], told["outcome"], told["answer"]) == ("acknowledged", "error", "done")
    attempt = Attempt.objects.get()
    assert (attempt.is_open, attempt.outcome, attempt.external_reference) == (False, "error", "https://x.example/1")
    assert '"exit":3' in text_at(attempt.answer_position)


def test_an_acknowledgement_with_unknown_outcome_stays_ambiguous(agent: Caller) -> None:
    effect = agent.plan()
    agent.dispatch(effect)
    told = agent.acknowledge(effect, outcome="unknown")
    assert (told["state"], told["answer"]) == ("acknowledged", "ambiguous")


def test_what_was_never_dispatched_cannot_be_answered(agent: Caller) -> None:
    effect = agent.plan()
    for verb, body in (
        ("acknowledge", {"attempt": 1, "outcome": "ok"}),
        ("fail", {"attempt": 1, "reason": "timeout"}),
    ):
        refused = agent.post(f"/effects/{effect['id']}/{verb}", body)
        assert code(refused) == (409, "NOT_DISPATCHED")
        assert refused.json()["effect"]["state"] == "planned"
    assert Attempt.objects.count() == 0
    agent.dispatch(effect)
    assert code(agent.post(f"/effects/{effect['id']}/acknowledge", {"attempt": 2, "outcome": "ok"})) == (
        409,
        "NOT_DISPATCHED",
    )


def test_a_late_acknowledgement_is_kept_as_evidence(agent: Caller) -> None:
    effect = agent.plan()
    agent.dispatch(effect)
    agent.fail(effect, "timeout")
    path = f"/effects/{effect['id']}/acknowledge"
    late = agent.post(path, {"attempt": 1, "outcome": "ok", "external_reference": "r"}, key="b")
    assert late.status_code == 202
    assert late.json()["state"] == "acknowledged"
    assert Entry.objects.get(kind="effect.acknowledged").lane == "evidence"
    again = agent.post(path, {"attempt": 1, "outcome": "ok", "external_reference": "r"}, key="b")
    assert (again.status_code, again.headers["idempotent-replay"]) == (202, "true")
    # Of two late words the one with the smaller key stands, in whatever order they came.
    for key, outcome in (("c", "ok"), ("a", "error")):
        assert agent.post(path, {"attempt": 1, "outcome": "error"}, key=key).json()["outcome"] == outcome


@pytest.mark.parametrize(
    ("reason", "outcome", "answer"),
    [("rejected", "error", "blocked"), ("timeout", "unknown", "ambiguous"), ("error", "unknown", "ambiguous")],
)
def test_a_failure_says_whether_anything_is_known_of_the_world(
    agent: Caller, reason: str, outcome: str, answer: str
) -> None:
    effect = agent.plan()
    agent.dispatch(effect)
    told = agent.fail(effect, reason)
    assert (told["state"], told["outcome"], told["answer"]) == ("failed", outcome, answer)
    again = agent.plan()
    assert again["answer"] == ("proceed" if reason == "rejected" else "ambiguous")
    if reason != "rejected":
        path = f"/effects/{effect['id']}/dispatch"
        assert code(agent.post(path, _grant(effect)))[0] == 409


def test_a_compensation_is_an_effect_of_its_own_and_open_once(agent: Caller) -> None:
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
    agent.fail(planned.json(), "timeout")  # nobody knows whether it undid anything
    assert code(agent.post(path, {**undo, "effect_key": "undo-2"})) == (409, "COMPENSATION_OPEN")
    agent.post(f"/effects/{planned.json()['id']}/acknowledge", {"attempt": 1, "outcome": "ok"})
    assert row(effect).state == "compensated"
    assert agent.get(f"/effects/{effect['id']}").json()["answer"] == "done"
    assert code(agent.post(path, {**undo, "effect_key": "undo-3"})) == (409, "WRONG_STATE")


def test_a_reported_compensation_is_asked_for_like_a_new_one(agent: Caller) -> None:
    effect = agent.plan("e")
    path = f"/effects/{effect['id']}/compensate"
    undo = {"tool": "git.revert", "arguments": {}}

    def report(key: str, *more: dict[str, Any]) -> None:
        said = {"kind": "effect.planned", "compensates": "e", **undo}
        of = {"session": "s-1", "effect_key": key}
        facts = [{"id": f"{key}-{n}", **of, **one} for n, one in enumerate([said, *more])]
        assert agent.report(facts).status_code == 200

    report("told-1")
    refused = agent.post(path, {**undo, "effect_key": "told-1"})  # of what did not happen yet
    assert code(refused) == (409, "WRONG_STATE")
    agent.dispatch(effect)
    agent.acknowledge(effect)
    other = agent.post(path, {**undo, "effect_key": "asked", "arguments": {"all": True}})
    assert other.status_code == 201
    for _ in range(2):
        assert code(agent.post(path, {**undo, "effect_key": "told-1"})) == (409, "COMPENSATION_OPEN")
    agent.post(f"/effects/{other.json()['id']}/supersede")
    taken = agent.post(path, {**undo, "effect_key": "told-1"}, key="k")
    assert (taken.status_code, taken.json()["leave"]) == (200, "granted")
    assert agent.post(path, {**undo, "effect_key": "told-1"}, key="k").status_code == 200
    report("told-2", {"kind": "effect.dispatched"}, {"kind": "effect.acknowledged", "outcome": "ok"})
    assert row(effect).state == "compensated"
    assert code(agent.post(path, {**undo, "effect_key": "told-2"})) == (409, "WRONG_STATE")
    assert Effect.objects.filter(compensates=effect["id"], lane="command").count() == 2


def test_only_what_has_not_happened_can_be_superseded(agent: Caller) -> None:
    effect = agent.plan("e-1")
    told = agent.post(f"/effects/{effect['id']}/supersede")
    assert (told.status_code, told.json()["state"], told.json()["answer"]) == (200, "superseded", "done")
    assert code(agent.post(f"/effects/{effect['id']}/dispatch", _grant(effect)))[0] == 409
    other = agent.plan("e-2")
    agent.dispatch(other)
    refused = agent.post(f"/effects/{other['id']}/supersede")
    assert code(refused) == (409, "WRONG_STATE")
    assert refused.json()["effect"]["state"] == "dispatched"
    agent.fail(other, "rejected")
    assert agent.post(f"/effects/{other['id']}/supersede").json()["state"] == "superseded"


def test_an_agent_that_withdraws_was_heard_of(agent: Caller) -> None:
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
    told = agent.get(f"/effects/{effect['id']}").json()
    assert [(one["attempt"], one["open"], one["outcome"]) for one in told["attempts"]] == [
        (1, False, "error"),
        (2, False, "ok"),
    ]
    assert (told["external_reference"], told["answer"]) == ("sha", "done")


def test_what_is_sent_slowly_is_received_when_it_is_here(agent: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, read = [now_us()], strict.read_body

    def slowly(*args: Any, **kwargs: Any) -> bytes:
        raw = read(*args, **kwargs)
        clock[0] += 600_000_000
        return raw

    monkeypatch.setattr("ingest.doors.now_us", lambda: clock[0])
    monkeypatch.setattr(strict, "read_body", slowly)
    assert row(agent.plan()).received_us == clock[0]
    assert agent.report([{"id": "f", "kind": "session.noted", "session": "s-1"}]).status_code == 200
    assert Entry.objects.get(event_id="f").received_us == clock[0]


def test_a_list_that_takes_too_long_is_stopped(
    agent: Caller, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    agent.plan()
    endless = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n)"
    for path, rows in (("/effects", Effect), ("/sessions", Session)):
        settings.GATEBOOK_SEARCH_TIMEOUT_S = 0.05
        with monkeypatch.context() as patched, transaction.atomic():
            never = rows.objects.annotate(number=RawSQL(endless, [])).filter(number=0)  # noqa: S611
            patched.setattr(rows.objects, "filter", lambda *_, never=never, **__: never)
            refused = agent.get(path)
            transaction.set_rollback(True)  # PostgreSQL takes nothing more after a statement that it stopped
        assert code(refused) == (503, "unavailable")
        assert refused.headers["retry-after"] == "5"
        settings.GATEBOOK_SEARCH_TIMEOUT_S = 60.0
        assert agent.get(path).status_code == 200


def test_effects_are_listed_by_exact_fields_and_paged(agent: Caller) -> None:
    for number in range(5):
        agent.plan(f"e-{number}", tool=f"tool.{number % 2}", arguments={"n": number})
    found = agent.get("/effects", tool="tool.0").json()
    assert [effect["effect_key"] for effect in found["items"]] == ["e-4", "e-2", "e-0"]
    first = agent.get("/effects", limit=3).json()
    rest = agent.get("/effects", limit=3, after=first["next"]).json()
    assert [effect["effect_key"] for effect in first["items"] + rest["items"]] == [f"e-{n}" for n in (4, 3, 2, 1, 0)]
    assert rest["next"] is None
    agent.dispatch(first["items"][0])
    assert [e["effect_key"] for e in agent.get("/effects", state="dispatched").json()["items"]] == ["e-4"]
    assert len(agent.get("/effects", session="s-1").json()["items"]) == 5
    assert agent.get("/effects", session="s-2").json()["items"] == []
    agent.acknowledge(first["items"][0], external_reference="abc")
    assert len(agent.get("/effects", external_reference="abc", outcome="ok").json()["items"]) == 1
    assert agent.get("/effects", external_reference="ok").json()["items"] == []
    assert len(agent.get("/effects", effect_key="e-1", session="s-1").json()["items"]) == 1
    assert agent.get("/effects", effect_key="e-1", session="s-2").json()["items"] == []
    assert agent.get("/effects", effect_key="e-1", session="s-1", state="failed").json()["items"] == []
    refused = agent.get("/effects", effect_key="e-1")
    assert (code(refused), refused.json()["pointer"]) == ((422, "session_missing"), "/effect_key")


@pytest.mark.parametrize(
    "body",
    [
        {"session": "s-1", "effect_key": "e"},
        {"session": "s-1", "effect_key": "e", "tool": ""},
        {"session": "s-1", "effect_key": "e\0", "tool": "t"},
        {"session": "s-1", "effect_key": "e", "tool": "t\n"},
        {"session": "s-1", "effect_key": "e" * 301, "tool": "t"},
        {"session": "s-1", "effect_key": "e", "tool": "t", "target": {"repo": "x"}},
        {"session": "s-1", "effect_key": "e", "tool": "t", "ordinal": -1},
        {"session": "s-1", "effect_key": "e", "tool": "t", "tool_class": "harmless"},
        {"session": "s-1", "effect_key": "e", "tool": "t", "verdict": "execute"},
        {"session": 5, "effect_key": "e", "tool": "t"},
    ],
    ids=str,
)
def test_what_is_no_plan_is_refused_whole(agent: Caller, body: dict[str, Any]) -> None:
    before = Entry.objects.count()
    refused = agent.post("/effects", body)
    assert code(refused) == (422, "invalid")
    assert Effect.objects.count() == 0
    assert Entry.objects.count() == before


def test_what_a_plan_speaks_of_must_exist(agent: Caller) -> None:
    body = {"session": "s-1", "effect_key": "e", "tool": "t"}
    assert code(agent.post("/effects", {**body, "session": "absent"})) == (404, "not_found")
    assert code(agent.post("/effects", {**body, "task": "absent"})) == (422, "task_unknown")
    assert code(agent.post("/effects", {**body, "parent_effect": str(uuid4())})) == (404, "not_found")
    assert Effect.objects.count() == 0
    assert Entry.objects.filter(kind="effect.planned").count() == 0


def test_a_claimed_class_is_stored_and_never_believed(agent: Caller) -> None:
    assert row(agent.plan("e", tool_class="read_only")).claimed_class == "read_only"
