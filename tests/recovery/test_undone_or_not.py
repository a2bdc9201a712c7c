"""Compensated attempts and duplicates: commands first, then reports in every order."""

from collections.abc import Sequence
from itertools import islice, permutations
from typing import Any

import pytest

from db.clock import now_us
from investigation.history.moment import JournalCut
from journal.models import Entry
from ledger.models import Effect
from tests.api.api_client import Caller
from tests.approvals.test_asof_replay import differences, live, made_again
from tests.ledger.fact_strategies import Said
from tests.ledger.test_commands_then_reports import every_delivery
from tests.ledger.test_convergence import stored, undone
from tests.matrices import IN_FULL
from tests.recovery.remote import dispatch_effect, row
from tests.recovery.test_odd_orders import undo
from tests.recovery.test_replays import worker

__all__ = ["worker"]
UNDO_ERROR = Said("a", "undo", "effect.acknowledged", fields={"outcome": "error"})
UNDO_OK = Said("b", "undo", "effect.acknowledged", fields={"outcome": "ok"})
LATER_UNDO_ERROR = Said(
    "c", "undo", "effect.acknowledged", fields={"outcome": "error"}
)  # its mark is later
SECOND_UNDO_OK = Said("d", "undo", "effect.acknowledged", attempt=2, fields={"outcome": "ok"})
FIRST = Said("e", "e-1", "effect.acknowledged", fields={"outcome": "ok"})
SECOND = Said("f", "e-1", "effect.acknowledged", attempt=2, fields={"outcome": "ok"})
TWICE = ["acknowledged_twice"]
ONE_IN = 1 if IN_FULL else 3  # deliveries is tried


def report(worker: Caller, reports: Sequence[Said]) -> None:
    assert worker.report([sent.item("s-1") for sent in reports]).status_code == 200


def begin_compensation(worker: Caller, command: str) -> dict[str, Any]:
    """Return the effect e-1, dispatched and with a compensation; `command` is the last command about
    the compensation."""
    effect = dispatch_effect(worker, "vm.start")
    compensation = undo(worker, effect)
    if command == "withdrawn":
        assert worker.post(f"/effects/{compensation['id']}/supersede").status_code == 200
    else:
        worker.dispatch(compensation)
        if command:
            worker.acknowledge(compensation, outcome=command)
    return effect


@pytest.mark.deepened
@pytest.mark.parametrize(
    ("command", "reports", "through", "violations"),
    [
        ("", [UNDO_OK, UNDO_ERROR], 0, []),
        ("", [UNDO_OK, LATER_UNDO_ERROR], 0, []),
        ("", [UNDO_OK, FIRST, SECOND], 1, []),
        ("", [UNDO_ERROR, FIRST, SECOND], 0, TWICE),
        ("ok", [UNDO_ERROR, FIRST, SECOND], 1, []),
        ("error", [SECOND_UNDO_OK, FIRST, SECOND], 0, TWICE),
        ("withdrawn", [FIRST, SECOND], 0, TWICE),
    ],
)
def test_whether_an_attempt_is_undone_does_not_depend_on_the_order(
    worker: Caller, command: str, reports: list[Said], through: int, violations: list[str]
) -> None:
    begin_compensation(worker, command)
    states = []
    for batches in islice(every_delivery(reports), 0, None, ONE_IN):
        with undone():
            for batch in batches:
                report(worker, batch)
            states.append(stored("s-1"))
    assert all(state == states[0] for state in states)
    effect = states[0]["effects"][0]
    assert (effect["effect_key"], effect["undone"], effect["violates"]) == (
        "e-1",
        through,
        bool(violations),
    )
    assert effect["state"] == ("acknowledged" if SECOND in reports else "dispatched")
    of_it = [facts for named, facts, _ in states[0]["violations"] if named == effect["id"]]
    assert [facts.split('"')[3] for facts in of_it] == violations


def test_contradictory_reports_of_a_compensation_do_not_undo_an_attempt(
    worker: Caller,
) -> None:
    begin_compensation(worker, "")
    states = []
    for order in permutations([UNDO_OK, LATER_UNDO_ERROR, FIRST, SECOND]):
        with undone():
            for sent in order:
                report(worker, [sent])
            states.append(stored("s-1"))
    assert all(state == states[0] for state in states)
    assert states[0]["effects"][0]["undone"] == 0
    assert [facts.split('"')[3] for _, facts, _ in states[0]["violations"]] == TWICE


def test_a_compensation_reported_as_failed_no_longer_undoes_its_attempt(
    worker: Caller,
) -> None:
    """A later compensation still counts, and each moment is rebuilt as it was shown."""
    effect = begin_compensation(worker, "")
    moments: list[tuple[JournalCut, dict[str, Any]]] = []

    def report_and_read(*reports: Said) -> tuple[str, int]:
        report(worker, reports)
        cut = JournalCut(Entry.objects.latest("position").position, now_us())
        moments.append((cut, live(cut.at_us)))
        return row(worker, effect)[2], Effect.objects.get(id=effect["id"]).undone

    def are_made_again() -> bool:
        project = Effect.objects.get(id=effect["id"]).project_id
        return all(differences(made_again(project, cut), seen) == {} for cut, seen in moments)

    assert report_and_read(UNDO_OK) == ("REJECTED_CLEAN", 1)
    with undone():
        assert report_and_read(UNDO_ERROR) == ("UNDO_FAILED", 0)
        assert are_made_again()
    del moments[1:]
    worker.dispatch(worker.plan("e-1", tool="vm.start"), "p-2")
    again = undo(worker, effect, key="undo again")
    worker.dispatch(again)
    worker.acknowledge(again)
    assert report_and_read(FIRST)[1] == report_and_read(UNDO_ERROR)[1] == 2
    assert are_made_again()
