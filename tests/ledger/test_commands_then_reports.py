"""Convergence of stories that begin with commands: what is reported afterwards gives one state in
every order."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, permutations
from typing import Any

import pytest

from ledger.models import Attempt
from tests.api.api_client import Caller
from tests.ledger.fact_strategies import Said
from tests.ledger.test_convergence import post, stored, undone

pytestmark = pytest.mark.django_db
LATE = Said("a", "e-1", "effect.acknowledged", fields={"outcome": "ok"})
SECOND = [
    Said("b", "e-1", "effect.dispatched", attempt=2),
    Said("c", "e-1", "effect.failed", attempt=2, fields={"reason": "rejected"}),
    Said("d", "e-1", "effect.acknowledged", attempt=2, fields={"outcome": "ok"}),
]
AGAIN = Said("e", "e-1", "effect.failed", fields={"reason": "rejected"})


def rejected_and_planned_again(agent: Caller) -> dict[str, Any]:
    """The effect e-1, whose attempt was rejected, or so it seemed, and for whose next one permission
    stands."""
    agent.session("s")
    effect = agent.plan(session="s")
    agent.dispatch(effect)
    agent.fail(effect, "rejected")
    return agent.plan(session="s")


@pytest.mark.parametrize("told", [SECOND[:1], SECOND[1:2], SECOND[2:], SECOND[::2], SECOND[:2]])
def test_permission_for_the_next_attempt_is_spent_by_it_whenever_the_one_before_turns_out_to_have_happened(
    agent: Caller, told: list[Said]
) -> None:
    assert rejected_and_planned_again(agent)["permission"] == "granted"
    states = []
    for order in permutations([LATE, AGAIN, *told]):
        for batches in ([order], [[said] for said in order]):
            with undone():
                for batch in batches:
                    post(agent, batch)
                states.append(stored("s"))
    assert all(state == states[0] for state in states)
    (effect,) = states[0]["effects"]
    assert (effect["permission"], effect["permission_basis"], effect["saved_permission"]) == (
        "used",
        "observe",
        "",
    )
    assert [row["permission"] for row in states[0]["attempts"]] == ["used", "used"]
    assert "executed_without_permission" not in str(states[0]["violations"])


def test_permission_that_was_set_aside_is_for_one_attempt(agent: Caller) -> None:
    rejected_and_planned_again(agent)
    for said in (LATE, SECOND[0], Said("f", "e-1", "effect.dispatched", attempt=3)):
        post(agent, [said])
    permissions = Attempt.objects.order_by("number").values_list("permission", flat=True)
    assert list(permissions) == ["used", "used", "observed"]


def every_delivery(told: Sequence[Any]) -> Iterator[list[list[Any]]]:
    """Every order of the facts, cut into batches in every way."""
    for order in permutations(told):
        for size in range(len(order)):
            for cuts in combinations(range(1, len(order)), size):
                ends = (0, *cuts, len(order))
                yield [list(order[one:other]) for one, other in pairwise(ends)]


NOBODY_KNOWS = Said(
    "a", "e-1", "effect.acknowledged", fields={"outcome": "unknown"}
)  # the earliest mark of all
DID = Said("b", "e-1", "effect.acknowledged", fields={"outcome": "ok", "external_reference": "9f2"})
WENT_WRONG = Said("c", "e-1", "effect.acknowledged", fields={"outcome": "error"})
DID_TOO = Said("d", "e-1", "effect.acknowledged", attempt=2, fields={"outcome": "ok"})
NOR_OF_IT = Said("e", "e-1", "effect.acknowledged", attempt=2, fields={"outcome": "unknown"})
THIRD = Said("f", "e-1", "effect.dispatched", attempt=3)


@pytest.mark.parametrize(
    ("command", "told", "expected", "violations"),
    [
        ("", [DID, NOBODY_KNOWS, DID_TOO], ("ok", ["ok", "ok"]), ["acknowledged_twice"]),
        ("", [DID, NOR_OF_IT, THIRD], ("ok", ["ok", "unknown", ""]), []),
        ("unknown", [DID, WENT_WRONG], ("ok", ["ok"]), []),
        ("error", [DID, NOBODY_KNOWS], ("error", ["error"]), []),
    ],
    ids=[
        "two that happened",
        "one, and two of which nobody knows",
        "nobody knew at first",
        "a command that knew",
    ],
)
def test_who_knows_is_believed_before_who_does_not_however_it_is_told(
    agent: Caller,
    command: str,
    told: list[Said],
    expected: tuple[str, list[str]],
    violations: list[str],
) -> None:
    """A violation that was told stays told: so it must follow from the facts, and not from what came
    first."""
    agent.session("s")
    effect = agent.plan(session="s")
    agent.dispatch(effect)
    if command:
        agent.acknowledge(effect, outcome=command)
    states = []
    for batches in every_delivery(told):
        with undone():
            for batch in batches:
                post(agent, batch)
            states.append(stored("s"))
    assert all(state == states[0] for state in states)
    (row,) = states[0]["effects"]
    assert (row["state"], row["violates"]) == ("acknowledged", bool(violations))
    assert (row["outcome"], [one["outcome"] for one in states[0]["attempts"]]) == expected
    assert [facts.split('"')[3] for _, facts, _ in states[0]["violations"]] == violations
