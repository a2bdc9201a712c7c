"""Probes: a hit acknowledges; a miss counts only if it began after the in-flight window."""

import itertools
import json
from typing import Any

import pytest

from accounts.models import Project
from db.clock import now_us
from journal.models import Entry
from ledger import violations
from ledger.models import Attempt, Effect
from tests.api.api_client import Caller, code
from tests.recovery.remote import age, declare, dispatch_effect, probe, replay, row, verdict

S = 1_000_000


@pytest.fixture
def worker(agent: Caller) -> Caller:
    """An agent with an open session, in a project whose tools are declared."""
    declare(Project.objects.get(name="default"))
    agent.session()
    return agent


def test_a_hit_acknowledges_the_attempt_with_its_reference(worker: Caller) -> None:
    effect = dispatch_effect(worker, "git.push")
    answer = probe(worker, effect, "hit", external_reference="3f2a91c")
    assert (answer["verdict"], answer["row"], answer["effect"]["state"]) == (
        "skip",
        "7",
        "acknowledged",
    )
    stored = Effect.objects.get(id=effect["id"])
    assert (stored.state, stored.outcome, stored.external_reference) == (
        "acknowledged",
        "ok",
        "3f2a91c",
    )
    assert code(replay(worker, effect)) == (409, "ALREADY_DISPATCHED")
    assert Entry.objects.get(kind="effect.probed").lane == "evidence"


def test_the_report_of_the_agent_wins_over_a_probe(worker: Caller) -> None:
    effect = dispatch_effect(worker, "git.push")
    worker.acknowledge(effect, outcome="error", external_reference="own")
    probe(worker, effect, "hit", external_reference="looked")
    stored = Effect.objects.get(id=effect["id"])
    assert (stored.outcome, stored.external_reference, stored.violates) == ("error", "own", False)


def test_a_miss_inside_the_window_waits_and_one_begun_after_it_proves_the_absence(
    worker: Caller,
) -> None:
    effect = dispatch_effect(worker, "git.push.slow")
    answer = probe(worker, effect, "miss")
    sent = Attempt.objects.get().received_us
    assert sent is not None
    assert (answer["verdict"], answer["reason"], answer["until_us"]) == (
        "wait",
        "IN_FLIGHT_WAIT",
        sent + 600 * S,
    )
    assert code(replay(worker, effect)) == (409, "ALREADY_DISPATCHED")
    assert verdict(worker, effect)["verdict"] == "wait"
    other = dispatch_effect(worker, "git.push.slow", "e-2", arguments={"ref": "other"})
    age(other, 601)
    assert row(worker, other) == ("probe", "21", "PROBED_ABSENT")
    answer = probe(worker, other, "miss")
    assert (answer["verdict"], answer["row"], answer["needs_permission"]) == ("replay", "21", False)
    assert answer["remote_key"] == Attempt.objects.get(effect=other["id"]).remote_key
    assert replay(worker, other).json()["remote_key"] == answer["remote_key"]


def test_a_probe_begun_inside_the_window_never_proves_an_absence(
    worker: Caller,
) -> None:
    effect = dispatch_effect(worker, "git.push.slow")
    age(effect, 601)
    sent = Attempt.objects.get().received_us or 0
    answer = probe(worker, effect, "miss", began_us=sent + 599 * S)
    assert answer["verdict"] == "probe"
    assert code(replay(worker, effect)) == (409, "ALREADY_DISPATCHED")
    assert probe(worker, effect, "miss", began_us=sent + 600 * S)["verdict"] == "replay"


def test_a_clock_that_runs_ahead_makes_no_probe_younger(worker: Caller) -> None:
    effect = dispatch_effect(worker, "git.push.slow")
    answer = probe(worker, effect, "miss", began_us=now_us() + 3600 * S)
    assert answer["reason"] == "IN_FLIGHT_WAIT"
    facts = json.loads(Entry.objects.get(kind="effect.probed").facts)
    assert facts["began_us"] == Entry.objects.get(kind="effect.probed").received_us


def test_a_later_report_of_an_earlier_probe_changes_nothing(worker: Caller) -> None:
    effect = dispatch_effect(worker, "git.push.slow")
    age(effect, 700)
    sent = Attempt.objects.get().received_us or 0
    assert probe(worker, effect, "miss", began_us=sent + 650 * S)["verdict"] == "replay"
    assert probe(worker, effect, "error", began_us=sent + 10 * S)["verdict"] == "replay"
    assert probe(worker, effect, "error", began_us=sent + 690 * S)["verdict"] in ("wait", "probe")


def test_a_probe_of_an_earlier_attempt_does_not_count_for_a_later_one(worker: Caller) -> None:
    effect = dispatch_effect(worker, "git.push.slow")
    age(effect, 601)
    assert probe(worker, effect, "miss")["verdict"] == "replay"
    assert replay(worker, effect).status_code == 200
    answer = verdict(worker, effect)
    assert (answer["verdict"], answer["attempt"]) in (("wait", 2), ("probe", 2))
    assert answer["reason"] in ("IN_FLIGHT_WAIT", "PROBED_ABSENT")
    assert code(replay(worker, effect, 2, "p-3")) == (409, "ALREADY_DISPATCHED")


def test_after_the_maximum_of_failed_probes_the_verdict_is_escalate(
    worker: Caller,
) -> None:
    effect = dispatch_effect(worker, "git.push.slow")  # max_probes: 2
    answer = probe(worker, effect, "error")
    assert (answer["verdict"], answer["row"]) == ("wait", "22")
    assert answer["until_us"] > answer["as_of_us"]
    answer = probe(worker, effect, "error")
    assert (answer["verdict"], answer["row"], answer["reason"]) == (
        "escalate",
        "22",
        "PROBE_FAILED",
    )
    assert (
        probe(worker, effect, "miss")["reason"] == "IN_FLIGHT_WAIT"
    )  # a successful probe resets the count


def test_a_probe_with_several_hits_is_a_violation_to_compensate(
    worker: Caller,
) -> None:
    effect = dispatch_effect(worker, "git.push.slow")  # undo: reference
    answer = probe(worker, effect, "several")
    assert (answer["verdict"], answer["row"], answer["reason"]) == (
        "compensate",
        "23",
        "DUPLICATE_FOUND",
    )
    stored = Effect.objects.get(id=effect["id"])
    assert stored.violates
    assert violations.load_effect_violations(stored) == [
        "A probe found it more than once: it happened twice."
    ]
    body = {"effect_key": "undo", "tool": "git.push.slow", "arguments": {"delete": "the second"}}
    undo = worker.post(f"/effects/{effect['id']}/compensate", body).json()
    worker.dispatch(undo)
    worker.acknowledge(undo)
    stored.refresh_from_db()
    assert (stored.state, stored.undone) == ("dispatched", 0)  # one occurrence remains
    assert row(worker, effect)[0] == "probe"
    assert probe(worker, effect, "hit", external_reference="the first")["verdict"] == "skip"


def test_several_hits_without_a_compensation_are_escalated(worker: Caller) -> None:
    effect = dispatch_effect(worker, "git.push")
    assert probe(worker, effect, "several")["verdict"] == "escalate"


def test_a_probe_is_reported_once_however_often_it_is_sent(worker: Caller) -> None:
    effect = dispatch_effect(worker, "git.push.slow")
    path, body = f"/effects/{effect['id']}/probe", {"attempt": 1, "result": "error"}
    first, second = (worker.post(path, body, key="probe") for _ in range(2))
    assert first.json()["inputs"] == second.json()["inputs"]
    assert Entry.objects.filter(kind="effect.probed").count() == 1
    assert code(worker.post(path, {"attempt": 1, "result": "miss"}, key="probe")) == (
        422,
        "key_reuse",
    )


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        ({"attempt": 2, "result": "hit"}, (409, "NOT_DISPATCHED")),
        ({"attempt": 1, "result": "perhaps"}, (422, "invalid")),
        ({"result": "hit"}, (422, "invalid")),
        ({"attempt": 1, "result": "hit", "colour": "red"}, (422, "invalid")),
    ],
)
def test_an_invalid_probe_is_refused(
    worker: Caller, body: dict[str, Any], refusal: tuple[int, str]
) -> None:
    effect = dispatch_effect(worker, "git.push")
    assert code(worker.post(f"/effects/{effect['id']}/probe", body)) == refusal
    assert not Entry.objects.filter(kind="effect.probed").exists()


def test_another_project_sees_neither_verdict_nor_probe(worker: Caller, stranger: Caller) -> None:
    effect = dispatch_effect(worker, "git.push")
    assert code(stranger.get(f"/effects/{effect['id']}/verdict"))[0] == 404
    assert (
        code(stranger.post(f"/effects/{effect['id']}/probe", {"attempt": 1, "result": "hit"}))[0]
        == 404
    )


def _reported(effect: dict[str, Any]) -> list[dict[str, Any]]:
    at = (Attempt.objects.get(effect=effect["id"]).received_us or 0) + 600 * S
    fields = {"kind": "effect.probed", "session": "s-1", "effect_key": "e-1"}
    return [
        {"id": "early", **fields, "result": "miss", "began_us": at - S},
        {"id": "error", **fields, "result": "error", "occurred_us": at + S},
        {"id": "late", **fields, "result": "miss", "began_us": at + 2 * S},
        {"id": "untimed", **fields, "result": "miss"},
    ]


def test_reported_probes_give_one_verdict_in_every_order_of_delivery(worker: Caller) -> None:
    effect = dispatch_effect(worker, "git.push.slow")
    age(effect, 700)
    for number, order in enumerate(itertools.permutations(range(4))):
        reports = _reported(effect)
        batch = [{**reports[index], "id": f"{reports[index]['id']}-{number}"} for index in order]
        assert worker.report(batch).status_code == 200
        assert row(worker, effect) == ("replay", "21", "PROBED_ABSENT")


def test_a_reported_miss_without_a_start_time_proves_nothing(worker: Caller) -> None:
    effect = dispatch_effect(worker, "git.push.slow")
    age(effect, 700)
    untimed = _reported(effect)[-1]
    assert worker.report([untimed]).status_code == 200
    assert row(worker, effect) == ("probe", "21", "PROBED_ABSENT")
    assert (
        worker.report(
            [{**untimed, "id": "h", "result": "hit", "external_reference": "r"}]
        ).status_code
        == 200
    )
    assert row(worker, effect) == ("skip", "7", "DONE")
