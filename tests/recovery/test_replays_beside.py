"""A replay and what stands beside the attempt in doubt: its undoing, the same intent asked again,
what was reported."""

from ledger.models import Effect
from tests.api.api_client import Caller
from tests.recovery.remote import age, dispatched, probe, row, verdict
from tests.recovery.test_replays import attempts, stored, worker

__all__ = ["worker"]


def test_what_can_be_undone_is_undone_and_then_done_anew_as_its_next_attempt(
    worker: Caller,
) -> None:
    effect = dispatched(worker, "vm.start")
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
    )  # that of the compensation, whose key is live
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
    )  # undone is undone, whenever its end is told
    assert worker.plan("e-1", tool="vm.start")["answer"] == "proceed"
    anew = worker.dispatch(effect, "p-2")
    assert (anew["attempt"], anew["remote_key"]) == (2, attempts(effect)[1].remote_key)
    assert anew["remote_key"] != attempts(effect)[0].remote_key
    assert worker.acknowledge(effect, 2)["state"] == "acknowledged"
    assert stored(effect).violates is False


def test_undone_and_planned_again_it_is_dispatched_as_the_verdict_says_whoever_asks_and_names_it(
    worker: Caller,
) -> None:
    """Nothing is told of the attempt that was undone: it is over all the same, and the next needs
    no `replays`."""
    for number, named in enumerate(({}, {"replays": 1})):
        effect = dispatched(worker, "vm.start", f"e-{number}", arguments={"n": number})
        body = {
            "effect_key": f"undo-{number}",
            "tool": "pay.keyed",
            "arguments": {"cancel": number},
        }
        undo = worker.post(f"/effects/{effect['id']}/compensate", body).json()
        worker.dispatch(undo)
        worker.acknowledge(undo)
        assert [one.is_open for one in attempts(effect)] == [False]
        assert (
            worker.plan(f"e-{number}", tool="vm.start", arguments={"n": number})["permission"]
            == "granted"
        )
        assert row(worker, effect)[:2] == ("execute", "2")
        asked = {"process": "p-2", "intent_digest": effect["intent_digest"], **named}
        answer = worker.post(f"/effects/{effect['id']}/dispatch", asked)
        assert (answer.status_code, answer.json()["attempt"]) == (200, 2), answer.text
        assert attempts(effect)[1].remote_key != attempts(effect)[0].remote_key


def test_an_undoing_that_went_wrong_leaves_the_doubt_and_a_person_is_asked(worker: Caller) -> None:
    effect = dispatched(worker, "vm.start")
    body = {"effect_key": "undo", "tool": "vm.start", "arguments": {"cancel": 1}}
    undo = worker.post(f"/effects/{effect['id']}/compensate", body).json()
    worker.dispatch(undo)
    worker.acknowledge(undo, outcome="error")
    assert stored(effect).undone == 0
    assert row(worker, effect) == ("escalate", "24", "UNDO_FAILED")


def test_a_compensation_of_what_is_known_to_have_happened_closes_it(worker: Caller) -> None:
    effect = dispatched(worker, "vm.start")
    worker.acknowledge(effect)
    undo = worker.post(
        f"/effects/{effect['id']}/compensate",
        {"effect_key": "undo", "tool": "vm.start", "arguments": {"cancel": 1}},
    ).json()
    worker.dispatch(undo)
    worker.acknowledge(undo)
    assert row(worker, effect) == ("skip", "8", "CLOSED")


def test_a_repeated_intent_after_a_crash_is_ambiguous_and_carries_the_verdict_of_the_open_one(
    worker: Caller,
) -> None:
    """The new process sends the same call under a new id, by command or by report: the first is
    still open."""
    asked = {"tool": "pay.keyed", "arguments": {"sum": 5}}
    first = worker.post("/effects", {"session": "s-1", "call_id": "call-1", **asked}).json()
    worker.dispatch(first)
    again = worker.post("/effects", {"session": "s-1", "call_id": "call-2", **asked}).json()
    assert (again["answer"], again["open_effect"]) == ("ambiguous", first["id"])
    assert (again["verdict"]["row"], again["verdict"]["verdict"]) == ("17", "replay")
    assert again["permission"] == "none"
    same = worker.post("/effects", {"session": "s-1", "call_id": "call-1", **asked}).json()
    assert (same["answer"], same["open_effect"], same["verdict"]["row"]) == (
        "ambiguous",
        first["id"],
        "17",
    )
    worker.acknowledge(first)
    freed = worker.post("/effects", {"session": "s-1", "call_id": "call-2", **asked}).json()
    assert freed["answer"] == "proceed"


def test_a_reported_effect_that_is_open_makes_the_same_intent_ambiguous(worker: Caller) -> None:
    said = {
        "session": "s-1",
        "effect_key": "reported",
        "tool": "git.push",
        "arguments": {"ref": "main"},
    }
    worker.report(
        [
            {"id": "p", "kind": "effect.planned", **said},
            {"id": "d", "kind": "effect.dispatched", "session": "s-1", "effect_key": "reported"},
        ]
    )
    planned = worker.post(
        "/effects",
        {"session": "s-1", "effect_key": "new", **{k: said[k] for k in ("tool", "arguments")}},
    )
    assert planned.json()["answer"] == "ambiguous"
    assert planned.json()["verdict"]["verdict"] == "probe"


def test_two_reported_attempts_in_doubt_have_two_keys_and_neither_guards_the_other(
    worker: Caller,
) -> None:
    said = {"session": "s-1", "effect_key": "e-1"}
    worker.report(
        [
            {"id": "p", "kind": "effect.planned", **said, "tool": "pay.short", "arguments": {}},
            {"id": "d1", "kind": "effect.dispatched", **said, "attempt": 1},
            {"id": "d2", "kind": "effect.dispatched", **said, "attempt": 2},
        ]
    )
    effect = {"id": str(Effect.objects.get().id)}
    age(effect, 100)
    asked = verdict(worker, effect)
    assert (asked["verdict"], asked["attempt"]) == ("probe", 2)
    assert [one["attempt"] for one in asked["in_doubt"]] == [1, 2]
    found = probe(worker, effect, "miss", attempt=2)
    assert (found["verdict"], found["attempt"]) == (
        "probe",
        1,
    )  # the older one may have happened all the same
    found = probe(worker, effect, "miss", attempt=1)
    assert (found["verdict"], found["row"], found["needs_permission"]) == ("replay", "18", True)
