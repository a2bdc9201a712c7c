"""Replays and their neighbors: compensations, repeated intents, and reported attempts."""

from ledger.models import Effect
from tests.api.api_client import Caller
from tests.recovery.remote import age, dispatch_effect, probe, row, verdict
from tests.recovery.test_replays import attempts, stored, worker

__all__ = ["worker"]


def test_a_compensable_effect_is_compensated_and_then_run_again(
    worker: Caller,
) -> None:
    effect = dispatch_effect(worker, "vm.start")
    assert row(worker, effect) == ("compensate", "24", "CANCEL_THEN_REDO")
    body = {
        "effect_key": "undo",
        "tool": "pay.keyed",
        "arguments": {"cancel": verdict(worker, effect)["remote_key"]},
    }
    undo = worker.post(f"/effects/{effect['id']}/compensate", body).json()
    assert row(worker, effect) == ("execute", "11", "COMP_RESUME")
    assert verdict(worker, effect)["compensation"] == undo["id"]
    worker.dispatch(undo)
    assert row(worker, effect)[:2] == (
        "replay",
        "11",
    )  # the verdict of the compensation, whose key is live
    worker.acknowledge(undo)
    assert (stored(effect).state, stored(effect).undone, stored(effect).compensated) == (
        "failed",
        1,
        False,
    )
    assert row(worker, effect)[:2] == ("replay", "9")
    late = worker.post(f"/effects/{effect['id']}/acknowledge", {"attempt": 1, "outcome": "ok"})
    assert (late.status_code, late.json()["state"]) == (
        202,
        "failed",
    )  # a late outcome of a compensated attempt changes nothing
    assert worker.plan("e-1", tool="vm.start")["answer"] == "proceed"
    retried = worker.dispatch(effect, "p-2")
    assert (retried["attempt"], retried["remote_key"]) == (2, attempts(effect)[1].remote_key)
    assert retried["remote_key"] != attempts(effect)[0].remote_key
    assert worker.acknowledge(effect, 2)["state"] == "acknowledged"
    assert stored(effect).violates is False


def test_a_compensated_effect_is_dispatched_again_with_or_without_replays(
    worker: Caller,
) -> None:
    """A compensated attempt without a report is closed, so the next one needs no `replays`."""
    for number, named in enumerate(({}, {"replays": 1})):
        effect = dispatch_effect(worker, "vm.start", f"e-{number}", arguments={"n": number})
        body = {
            "effect_key": f"undo-{number}",
            "tool": "pay.keyed",
            "arguments": {"cancel": number},
        }
        undo = worker.post(f"/effects/{effect['id']}/compensate", body).json()
        worker.dispatch(undo)
        worker.acknowledge(undo)
        assert [attempt.is_open for attempt in attempts(effect)] == [False]
        assert (
            worker.plan(f"e-{number}", tool="vm.start", arguments={"n": number})["permission"]
            == "granted"
        )
        assert row(worker, effect)[:2] == ("execute", "2")
        start = {"process": "p-2", "intent_digest": effect["intent_digest"], **named}
        answer = worker.post(f"/effects/{effect['id']}/dispatch", start)
        assert (answer.status_code, answer.json()["attempt"]) == (200, 2), answer.text
        assert attempts(effect)[1].remote_key != attempts(effect)[0].remote_key


def test_after_a_failed_compensation_the_effect_needs_a_person(worker: Caller) -> None:
    effect = dispatch_effect(worker, "vm.start")
    body = {"effect_key": "undo", "tool": "vm.start", "arguments": {"cancel": 1}}
    undo = worker.post(f"/effects/{effect['id']}/compensate", body).json()
    worker.dispatch(undo)
    worker.acknowledge(undo, outcome="error")
    assert stored(effect).undone == 0
    assert row(worker, effect) == ("escalate", "24", "UNDO_FAILED")


def test_a_compensation_of_an_acknowledged_effect_closes_it(worker: Caller) -> None:
    effect = dispatch_effect(worker, "vm.start")
    worker.acknowledge(effect)
    undo = worker.post(
        f"/effects/{effect['id']}/compensate",
        {"effect_key": "undo", "tool": "vm.start", "arguments": {"cancel": 1}},
    ).json()
    worker.dispatch(undo)
    worker.acknowledge(undo)
    assert row(worker, effect) == ("skip", "8", "CLOSED")


def test_a_repeated_intent_after_a_crash_is_ambiguous_and_has_the_verdict(
    worker: Caller,
) -> None:
    """The new process sends the same call under a new id while the first effect is open."""
    call = {"tool": "pay.keyed", "arguments": {"sum": 5}}
    first = worker.post("/effects", {"session": "s-1", "call_id": "call-1", **call}).json()
    worker.dispatch(first)
    again = worker.post("/effects", {"session": "s-1", "call_id": "call-2", **call}).json()
    assert (again["answer"], again["open_effect"]) == ("ambiguous", first["id"])
    assert (again["verdict"]["row"], again["verdict"]["verdict"]) == ("17", "replay")
    assert again["permission"] == "none"
    same = worker.post("/effects", {"session": "s-1", "call_id": "call-1", **call}).json()
    assert (same["answer"], same["open_effect"], same["verdict"]["row"]) == (
        "ambiguous",
        first["id"],
        "17",
    )
    worker.acknowledge(first)
    freed = worker.post("/effects", {"session": "s-1", "call_id": "call-2", **call}).json()
    assert freed["answer"] == "proceed"


def test_an_open_reported_effect_makes_the_same_intent_ambiguous(worker: Caller) -> None:
    fields = {
        "session": "s-1",
        "effect_key": "reported",
        "tool": "git.push",
        "arguments": {"ref": "main"},
    }
    worker.report(
        [
            {"id": "p", "kind": "effect.planned", **fields},
            {"id": "d", "kind": "effect.dispatched", "session": "s-1", "effect_key": "reported"},
        ]
    )
    planned = worker.post(
        "/effects",
        {"session": "s-1", "effect_key": "new", **{k: fields[k] for k in ("tool", "arguments")}},
    )
    assert planned.json()["answer"] == "ambiguous"
    assert planned.json()["verdict"]["verdict"] == "probe"


def test_two_reported_attempts_in_doubt_have_separate_keys(
    worker: Caller,
) -> None:
    fields = {"session": "s-1", "effect_key": "e-1"}
    worker.report(
        [
            {"id": "p", "kind": "effect.planned", **fields, "tool": "pay.short", "arguments": {}},
            {"id": "d1", "kind": "effect.dispatched", **fields, "attempt": 1},
            {"id": "d2", "kind": "effect.dispatched", **fields, "attempt": 2},
        ]
    )
    effect = {"id": str(Effect.objects.get().id)}
    age(effect, 100)
    current = verdict(worker, effect)
    assert (current["verdict"], current["attempt"]) == ("probe", 2)
    assert [attempt["attempt"] for attempt in current["in_doubt"]] == [1, 2]
    answer = probe(worker, effect, "miss", attempt=2)
    assert (answer["verdict"], answer["attempt"]) == (
        "probe",
        1,
    )  # the older attempt may still have happened
    answer = probe(worker, effect, "miss", attempt=1)
    assert (answer["verdict"], answer["row"], answer["needs_permission"]) == ("replay", "18", True)
