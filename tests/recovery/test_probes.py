"""Looks at the remote: a hit acknowledges, a miss counts from when it began, and only after the
fence."""

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
from tests.recovery.remote import age, declare, dispatched, probe, replay, row, verdict

S = 1_000_000


@pytest.fixture
def worker(agent: Caller) -> Caller:
    """An agent with an open session, in a project whose tools are declared."""
    declare(Project.objects.get(name="default"))
    agent.session()
    return agent


def test_a_hit_acknowledges_the_attempt_with_its_reference(worker: Caller) -> None:
    effect = dispatched(worker, "git.push")
    told = probe(worker, effect, "hit", external_reference="3f2a91c")
    assert (told["verdict"], told["row"], told["effect"]["state"]) == ("skip", "7", "acknowledged")
    stored = Effect.objects.get(id=effect["id"])
    assert (stored.state, stored.outcome, stored.external_reference) == (
        "acknowledged",
        "ok",
        "3f2a91c",
    )
    assert code(replay(worker, effect)) == (409, "ALREADY_DISPATCHED")
    assert Entry.objects.get(kind="effect.probed").lane == "evidence"


def test_the_report_of_whoever_acted_goes_before_what_a_probe_found(worker: Caller) -> None:
    effect = dispatched(worker, "git.push")
    worker.acknowledge(effect, outcome="error", external_reference="own")
    probe(worker, effect, "hit", external_reference="looked")
    stored = Effect.objects.get(id=effect["id"])
    assert (stored.outcome, stored.external_reference, stored.violates) == ("error", "own", False)


def test_a_miss_inside_the_window_waits_and_one_begun_after_it_proves_the_absence(
    worker: Caller,
) -> None:
    effect = dispatched(worker, "git.push.slow")
    told = probe(worker, effect, "miss")
    sent = Attempt.objects.get().received_us
    assert sent is not None
    assert (told["verdict"], told["reason"], told["until_us"]) == (
        "wait",
        "IN_FLIGHT_WAIT",
        sent + 600 * S,
    )
    assert code(replay(worker, effect)) == (409, "ALREADY_DISPATCHED")
    assert verdict(worker, effect)["verdict"] == "wait"
    other = dispatched(worker, "git.push.slow", "e-2", arguments={"ref": "other"})
    age(other, 601)
    assert row(worker, other) == ("probe", "21", "PROBED_ABSENT")
    told = probe(worker, other, "miss")
    assert (told["verdict"], told["row"], told["needs_permission"]) == ("replay", "21", False)
    assert told["remote_key"] == Attempt.objects.get(effect=other["id"]).remote_key
    assert replay(worker, other).json()["remote_key"] == told["remote_key"]


def test_a_probe_begun_inside_the_window_never_proves_an_absence_however_late(
    worker: Caller,
) -> None:
    effect = dispatched(worker, "git.push.slow")
    age(effect, 601)
    sent = Attempt.objects.get().received_us or 0
    told = probe(worker, effect, "miss", began_us=sent + 599 * S)
    assert told["verdict"] == "probe"
    assert code(replay(worker, effect)) == (409, "ALREADY_DISPATCHED")
    assert probe(worker, effect, "miss", began_us=sent + 600 * S)["verdict"] == "replay"


def test_a_clock_that_runs_ahead_makes_no_probe_younger(worker: Caller) -> None:
    effect = dispatched(worker, "git.push.slow")
    told = probe(worker, effect, "miss", began_us=now_us() + 3600 * S)
    assert told["reason"] == "IN_FLIGHT_WAIT"
    facts = json.loads(Entry.objects.get(kind="effect.probed").facts)
    assert facts["began_us"] == Entry.objects.get(kind="effect.probed").received_us


def test_a_later_probe_that_began_earlier_takes_nothing_back(worker: Caller) -> None:
    effect = dispatched(worker, "git.push.slow")
    age(effect, 700)
    sent = Attempt.objects.get().received_us or 0
    assert probe(worker, effect, "miss", began_us=sent + 650 * S)["verdict"] == "replay"
    assert probe(worker, effect, "error", began_us=sent + 10 * S)["verdict"] == "replay"
    assert probe(worker, effect, "error", began_us=sent + 690 * S)["verdict"] in ("wait", "probe")


def test_a_probe_of_an_earlier_attempt_says_nothing_of_a_later_one(worker: Caller) -> None:
    effect = dispatched(worker, "git.push.slow")
    age(effect, 601)
    assert probe(worker, effect, "miss")["verdict"] == "replay"
    assert replay(worker, effect).status_code == 200
    told = verdict(worker, effect)
    assert (told["verdict"], told["attempt"]) in (("wait", 2), ("probe", 2))
    assert told["reason"] in ("IN_FLIGHT_WAIT", "PROBED_ABSENT")
    assert code(replay(worker, effect, 2, "p-3")) == (409, "ALREADY_DISPATCHED")


def test_after_as_many_failed_looks_as_the_operator_allows_a_person_is_asked(
    worker: Caller,
) -> None:
    effect = dispatched(worker, "git.push.slow")  # max_probes: 2
    told = probe(worker, effect, "error")
    assert (told["verdict"], told["row"]) == ("wait", "22")
    assert told["until_us"] > told["as_of_us"]
    told = probe(worker, effect, "error")
    assert (told["verdict"], told["row"], told["reason"]) == ("escalate", "22", "PROBE_FAILED")
    assert (
        probe(worker, effect, "miss")["reason"] == "IN_FLIGHT_WAIT"
    )  # the row of failures has ended


def test_what_is_found_several_times_is_a_violation_and_its_extras_are_undone(
    worker: Caller,
) -> None:
    effect = dispatched(worker, "git.push.slow")  # undo: reference
    told = probe(worker, effect, "several")
    assert (told["verdict"], told["row"], told["reason"]) == ("compensate", "23", "DUPLICATE_FOUND")
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
    assert (stored.state, stored.undone) == ("dispatched", 0)  # one of them stands
    assert row(worker, effect)[0] == "probe"
    assert probe(worker, effect, "hit", external_reference="the first")["verdict"] == "skip"


def test_several_of_what_nothing_undoes_is_for_people(worker: Caller) -> None:
    effect = dispatched(worker, "git.push")
    assert probe(worker, effect, "several")["verdict"] == "escalate"


def test_a_probe_is_reported_once_however_often_it_is_sent(worker: Caller) -> None:
    effect = dispatched(worker, "git.push.slow")
    path, body = f"/effects/{effect['id']}/probe", {"attempt": 1, "result": "error"}
    first, second = (worker.post(path, body, key="look") for _ in range(2))
    assert first.json()["inputs"] == second.json()["inputs"]
    assert Entry.objects.filter(kind="effect.probed").count() == 1
    assert code(worker.post(path, {"attempt": 1, "result": "miss"}, key="look")) == (
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
def test_what_is_no_probe_is_refused(
    worker: Caller, body: dict[str, Any], refusal: tuple[int, str]
) -> None:
    effect = dispatched(worker, "git.push")
    assert code(worker.post(f"/effects/{effect['id']}/probe", body)) == refusal
    assert not Entry.objects.filter(kind="effect.probed").exists()


def test_another_project_sees_neither_verdict_nor_probe(worker: Caller, stranger: Caller) -> None:
    effect = dispatched(worker, "git.push")
    assert code(stranger.get(f"/effects/{effect['id']}/verdict"))[0] == 404
    assert (
        code(stranger.post(f"/effects/{effect['id']}/probe", {"attempt": 1, "result": "hit"}))[0]
        == 404
    )


def _reported(effect: dict[str, Any]) -> list[dict[str, Any]]:
    at = (Attempt.objects.get(effect=effect["id"]).received_us or 0) + 600 * S
    said = {"kind": "effect.probed", "session": "s-1", "effect_key": "e-1"}
    return [
        {"id": "early", **said, "result": "miss", "began_us": at - S},
        {"id": "error", **said, "result": "error", "occurred_us": at + S},
        {"id": "late", **said, "result": "miss", "began_us": at + 2 * S},
        {"id": "unsaid", **said, "result": "miss"},
    ]


def test_reported_looks_give_one_verdict_in_every_order_of_delivery(worker: Caller) -> None:
    effect = dispatched(worker, "git.push.slow")
    age(effect, 700)
    for number, order in enumerate(itertools.permutations(range(4))):
        told = _reported(effect)
        batch = [{**told[index], "id": f"{told[index]['id']}-{number}"} for index in order]
        assert worker.report(batch).status_code == 200
        assert row(worker, effect) == ("replay", "21", "PROBED_ABSENT")


def test_a_reported_miss_of_which_nobody_says_when_it_began_proves_nothing(worker: Caller) -> None:
    effect = dispatched(worker, "git.push.slow")
    age(effect, 700)
    unsaid = _reported(effect)[-1]
    assert worker.report([unsaid]).status_code == 200
    assert row(worker, effect) == ("probe", "21", "PROBED_ABSENT")
    assert (
        worker.report(
            [{**unsaid, "id": "h", "result": "hit", "external_reference": "r"}]
        ).status_code
        == 200
    )
    assert row(worker, effect) == ("skip", "7", "DONE")
