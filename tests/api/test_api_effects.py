"""Effects in the command lane: success, refusals and stored rows of every verb."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from journal.models import Entry
from ledger.models import Attempt, Effect
from sessions.models import Session
from tests.api.api_client import Caller, code, new_key
from tests.api.rows import select_body_text


@pytest.fixture(autouse=True)
def session(agent: Caller) -> dict[str, Any]:
    return agent.session("s-1")


def row(effect: dict[str, Any]) -> Effect:
    return Effect.objects.get(id=effect["id"])


def test_a_plan_is_written_down_and_released(agent: Caller) -> None:
    target = {
        "repository": "acme/x",
        "ref": "refs/heads/main",
        "environment": "ci",
        "resource": "deploy",
    }
    body = {
        "session": "s-1",
        "effect_key": "push",
        "tool": "git.push",
        "arguments": {"ref": "main"},
        "target": target,
    }
    answer = agent.post("/effects", {**body, "turn": "7", "why": "the tests passed"})
    assert answer.status_code == 201
    effect = answer.json()
    assert (
        effect["state"],
        effect["permission"],
        effect["permission_basis"],
        effect["answer"],
    ) == (
        "planned",
        "granted",
        "observe",
        "proceed",
    )
    stored = row(effect)
    assert (stored.state, stored.permission, stored.lane, stored.tool) == (
        "planned",
        "granted",
        "command",
        "git.push",
    )
    assert (stored.turn, stored.environment, stored.resource) == ("7", "ci", "deploy")
    assert stored.repository is not None
    assert stored.repository.name == "acme/x"
    assert stored.intent_digest == effect["intent_digest"]
    assert effect["intent_digest"].startswith("v1:")
    assert Session.objects.get().effect_count == 1
    assert "the tests passed" in select_body_text(stored.plan_position)


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


def test_a_repeated_plan_gets_the_present_answer_and_never_the_stored_one(
    agent: Caller,
) -> None:
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
        "/effects",
        {"session": "s-1", "effect_key": "e", "tool": "git.push", "arguments": {"ref": "x"}},
    )
    assert code(refused) == (422, "key_reuse")
    assert refused.json()["effect"]["id"] == effect["id"]
    assert Entry.objects.filter(kind="integrity.conflict", effect=UUID(effect["id"])).count() == 1
    assert row(effect).intent_digest == effect["intent_digest"]


def test_a_second_open_effect_of_one_intent_is_ambiguous_unless_they_are_siblings(
    agent: Caller,
) -> None:
    first = agent.plan("e-1", turn="1")
    sibling = agent.plan("e-2", turn="1")
    assert sibling["answer"] == "proceed"
    other = agent.plan("e-3", turn="2")
    assert (other["answer"], other["permission"]) == ("ambiguous", "none")
    assert other["open_effect"] in (first["id"], sibling["id"])
    assert code(agent.post(f"/effects/{other['id']}/dispatch", _grant(other))) == (
        409,
        "NO_PERMISSION",
    )
    for effect in (first, sibling):
        agent.dispatch(effect)
        agent.acknowledge(effect)
    assert agent.plan("e-3", turn="2")["answer"] == "proceed"


def test_free_text_is_no_part_of_the_intent(agent: Caller) -> None:
    arguments = {"command": "make", "description": "build it"}
    first = agent.plan("e", tool="bash", arguments=arguments, free_text=["description"])
    again = agent.plan(
        "e", tool="bash", arguments={**arguments, "description": "other"}, free_text=["description"]
    )
    assert first["intent_digest"] == again["intent_digest"]
    body = {
        "process": "p",
        "arguments": {**arguments, "description": "a third"},
        "free_text": ["description"],
    }
    assert agent.post(f"/effects/{first['id']}/dispatch", body).status_code == 200


def _grant(effect: dict[str, Any], process: str = "p-1") -> dict[str, Any]:
    return {"process": process, "intent_digest": effect["intent_digest"]}


def test_a_dispatch_uses_the_permission_and_opens_the_attempt(agent: Caller) -> None:
    effect = agent.plan()
    dispatched = agent.dispatch(effect)
    assert (dispatched["state"], dispatched["permission"], dispatched["attempt"]) == (
        "dispatched",
        "used",
        1,
    )
    attempt = Attempt.objects.get()
    assert (attempt.remote_key, attempt.process, attempt.is_open) == (
        dispatched["remote_key"],
        "p-1",
        True,
    )
    assert (attempt.lane, attempt.permission) == ("command", "used")
    assert row(effect).deadline_us is not None


def test_a_grant_is_repeated_to_the_very_same_asker_while_the_attempt_is_open(
    agent: Caller,
) -> None:
    effect, key = agent.plan(), new_key()
    path = f"/effects/{effect['id']}/dispatch"
    dispatched = agent.dispatch(effect, key=key)
    again = agent.post(path, _grant(effect), key=key)
    assert (again.status_code, again.json()["remote_key"]) == (200, dispatched["remote_key"])
    assert code(agent.post(path, _grant(effect))) == (409, "ALREADY_DISPATCHED")  # another key
    assert code(agent.post(path, {**_grant(effect), "lease_epoch": 2}, key=new_key())) == (
        409,
        "ALREADY_DISPATCHED",
    )
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
    assert agent.plan()["permission"] == "granted"  # planned again after a clean rejection
    replayed = agent.post(path, _grant(effect), key=key)
    assert code(replayed) == (409, "ALREADY_DISPATCHED")
    second = agent.dispatch(effect)
    assert second["attempt"] == 2
    assert (
        second["remote_key"]
        == Attempt.objects.get(number=2).remote_key
        != Attempt.objects.get(number=1).remote_key
    )
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
    assert (
        Entry.objects.filter(kind="integrity.conflict", facts__contains="INTENT_MISMATCH").count()
        == 3
    )
    assert Attempt.objects.count() == 0
    assert code(agent.post(path, {"process": "p"})) == (422, "intent_missing")
    # A refused command does not consume its key.
    assert (
        agent.post(path, {"process": "p", "arguments": {"ref": "main"}}, key=key).status_code == 200
    )


def test_an_acknowledgement_closes_the_attempt(agent: Caller) -> None:
    effect = agent.plan()
    agent.dispatch(effect)
    acknowledged = agent.acknowledge(
        effect, outcome="error", external_reference="https://x.example/1", result={"exit": 3}
    )
    assert (acknowledged["state"], acknowledged["outcome"], acknowledged["answer"]) == (
        "acknowledged",
        "error",
        "done",
    )
    attempt = Attempt.objects.get()
    assert (attempt.is_open, attempt.outcome, attempt.external_reference) == (
        False,
        "error",
        "https://x.example/1",
    )
    assert '"exit":3' in select_body_text(attempt.answer_position)


def test_an_acknowledgement_with_unknown_outcome_stays_ambiguous(agent: Caller) -> None:
    effect = agent.plan()
    agent.dispatch(effect)
    acknowledged = agent.acknowledge(effect, outcome="unknown")
    assert (acknowledged["state"], acknowledged["answer"]) == ("acknowledged", "ambiguous")


def test_an_effect_without_a_dispatch_cannot_be_answered(agent: Caller) -> None:
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
    assert code(
        agent.post(f"/effects/{effect['id']}/acknowledge", {"attempt": 2, "outcome": "ok"})
    ) == (
        409,
        "NOT_DISPATCHED",
    )


def test_a_late_acknowledgement_is_stored_as_evidence(agent: Caller) -> None:
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
    # Of two late reports the one with the smaller key counts, in either order.
    for key, outcome in (("c", "ok"), ("a", "error")):
        assert (
            agent.post(path, {"attempt": 1, "outcome": "error"}, key=key).json()["outcome"]
            == outcome
        )


@pytest.mark.parametrize(
    ("reason", "outcome", "answer"),
    [
        ("rejected", "error", "blocked"),
        ("timeout", "unknown", "ambiguous"),
        ("error", "unknown", "ambiguous"),
    ],
)
def test_a_failure_reason_decides_whether_the_outcome_is_known(
    agent: Caller, reason: str, outcome: str, answer: str
) -> None:
    effect = agent.plan()
    agent.dispatch(effect)
    failed = agent.fail(effect, reason)
    assert (failed["state"], failed["outcome"], failed["answer"]) == ("failed", outcome, answer)
    again = agent.plan()
    assert again["answer"] == ("proceed" if reason == "rejected" else "ambiguous")
    if reason != "rejected":
        path = f"/effects/{effect['id']}/dispatch"
        assert code(agent.post(path, _grant(effect)))[0] == 409


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
def test_an_invalid_plan_is_refused_completely(agent: Caller, body: dict[str, Any]) -> None:
    before = Entry.objects.count()
    refused = agent.post("/effects", body)
    assert code(refused) == (422, "invalid")
    assert Effect.objects.count() == 0
    assert Entry.objects.count() == before


def test_the_objects_a_plan_names_must_exist(agent: Caller) -> None:
    body = {"session": "s-1", "effect_key": "e", "tool": "t"}
    assert code(agent.post("/effects", {**body, "session": "absent"})) == (404, "not_found")
    assert code(agent.post("/effects", {**body, "task": "absent"})) == (422, "task_unknown")
    assert code(agent.post("/effects", {**body, "parent_effect": str(uuid4())})) == (
        404,
        "not_found",
    )
    assert Effect.objects.count() == 0
    assert Entry.objects.filter(kind="effect.planned").count() == 0


def test_a_claimed_class_is_stored_and_never_believed(agent: Caller) -> None:
    assert row(agent.plan("e", tool_class="read_only")).claimed_class == "read_only"
