"""Whether an attempt was undone, and so done twice or not: told by commands, then by reports in
every order."""

from collections.abc import Sequence
from itertools import permutations
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
from tests.recovery.remote import dispatched, row
from tests.recovery.test_odd_orders import undo
from tests.recovery.test_replays import worker

__all__ = ["worker"]
WENT_WRONG = Said("a", "undo", "effect.acknowledged", fields={"outcome": "error"})
WENT_WELL = Said("b", "undo", "effect.acknowledged", fields={"outcome": "ok"})
WENT_WRONG_TOO = Said(
    "c", "undo", "effect.acknowledged", fields={"outcome": "error"}
)  # after it by its mark
WENT_WELL_LATER = Said("d", "undo", "effect.acknowledged", attempt=2, fields={"outcome": "ok"})
FIRST = Said("e", "e-1", "effect.acknowledged", fields={"outcome": "ok"})
SECOND = Said("f", "e-1", "effect.acknowledged", attempt=2, fields={"outcome": "ok"})
TWICE = ["acknowledged_twice"]


def report(worker: Caller, told: Sequence[Said]) -> None:
    assert worker.report([said.item("s-1") for said in told]).status_code == 200


def being_undone(worker: Caller, command: str) -> dict[str, Any]:
    """The effect e-1, which may have happened, and its compensation, begun; `command` is the last
    about that."""
    effect = dispatched(worker, "vm.start")
    undoing = undo(worker, effect)
    if command == "withdrawn":
        assert worker.post(f"/effects/{undoing['id']}/supersede").status_code == 200
    else:
        worker.dispatch(undoing)
        if command:
            worker.acknowledge(undoing, outcome=command)
    return effect


@pytest.mark.parametrize(
    ("command", "told", "through", "violations"),
    [
        ("", [WENT_WELL, WENT_WRONG], 0, []),
        ("", [WENT_WELL, WENT_WRONG_TOO], 0, []),
        ("", [WENT_WELL, FIRST, SECOND], 1, []),
        ("", [WENT_WRONG, FIRST, SECOND], 0, TWICE),
        ("ok", [WENT_WRONG, FIRST, SECOND], 1, []),
        ("error", [WENT_WELL_LATER, FIRST, SECOND], 0, TWICE),
        ("withdrawn", [FIRST, SECOND], 0, TWICE),
    ],
)
def test_what_was_undone_is_told_by_the_facts_and_not_by_their_order(
    worker: Caller, command: str, told: list[Said], through: int, violations: list[str]
) -> None:
    being_undone(worker, command)
    states = []
    for batches in every_delivery(told):
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
    assert effect["state"] == ("acknowledged" if SECOND in told else "dispatched")
    of_it = [facts for named, facts, _ in states[0]["violations"] if named == effect["id"]]
    assert [facts.split('"')[3] for facts in of_it] == violations


def test_an_undoing_of_which_reports_contradict_each_other_did_not_undo_what_was_done_twice(
    worker: Caller,
) -> None:
    being_undone(worker, "")
    states = []
    for order in permutations([WENT_WELL, WENT_WRONG_TOO, FIRST, SECOND]):
        with undone():
            for said in order:
                report(worker, [said])
            states.append(stored("s-1"))
    assert all(state == states[0] for state in states)
    assert states[0]["effects"][0]["undone"] == 0
    assert [facts.split('"')[3] for _, facts, _ in states[0]["violations"]] == TWICE


def test_an_undoing_that_turns_out_to_have_failed_takes_back_what_it_undid_and_no_more(
    worker: Caller,
) -> None:
    """A later one stands. And each moment is made again as it was shown."""
    effect = being_undone(worker, "")
    moments: list[tuple[JournalCut, dict[str, Any]]] = []

    def shown(*told: Said) -> tuple[str, int]:
        report(worker, told)
        cut = JournalCut(Entry.objects.latest("position").position, now_us())
        moments.append((cut, live(cut.at_us)))
        return row(worker, effect)[2], Effect.objects.get(id=effect["id"]).undone

    def are_made_again() -> bool:
        project = Effect.objects.get(id=effect["id"]).project_id
        return all(differences(made_again(project, cut), seen) == {} for cut, seen in moments)

    assert shown(WENT_WELL) == ("REJECTED_CLEAN", 1)
    with undone():
        assert shown(WENT_WRONG) == ("UNDO_FAILED", 0)
        assert are_made_again()
    del moments[1:]
    worker.dispatch(worker.plan("e-1", tool="vm.start"), "p-2")
    again = undo(worker, effect, key="undo again")
    worker.dispatch(again)
    worker.acknowledge(again)
    assert shown(FIRST)[1] == shown(WENT_WRONG)[1] == 2
    assert are_made_again()
