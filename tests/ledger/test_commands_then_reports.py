"""Convergence of reports after commands: every order of delivery gives the same state."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, permutations
from typing import Any

import pytest

from ledger.models import Attempt
from tests.api.api_client import Caller
from tests.ledger.fact_strategies import Said
from tests.ledger.test_convergence import post, stored, undone
from tests.matrices import keep_core

pytestmark = pytest.mark.django_db
LATE = Said("a", "e-1", "effect.acknowledged", fields={"outcome": "ok"})
SECOND = [
    Said("b", "e-1", "effect.dispatched", attempt=2),
    Said("c", "e-1", "effect.failed", attempt=2, fields={"reason": "rejected"}),
    Said("d", "e-1", "effect.acknowledged", attempt=2, fields={"outcome": "ok"}),
]
AGAIN = Said("e", "e-1", "effect.failed", fields={"reason": "rejected"})


def rejected_and_planned_again(agent: Caller) -> dict[str, Any]:
    """Return the effect e-1: its attempt was reported as rejected, and the next one has permission."""
    agent.session("s")
    effect = agent.plan(session="s")
    agent.dispatch(effect)
    agent.fail(effect, "rejected")
    return agent.plan(session="s")


@pytest.mark.parametrize(
    "reports",
    keep_core([SECOND[:1], SECOND[1:2], SECOND[2:], SECOND[::2], SECOND[:2]], one_in=2),
)
def test_the_next_attempt_uses_its_permission_even_if_the_last_one_succeeded(
    agent: Caller, reports: list[Said]
) -> None:
    assert rejected_and_planned_again(agent)["permission"] == "granted"
    states = []
    for order in permutations([LATE, AGAIN, *reports]):
        for batches in ([order], [[report] for report in order]):
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


def test_a_saved_permission_is_for_one_attempt(agent: Caller) -> None:
    rejected_and_planned_again(agent)
    for report in (LATE, SECOND[0], Said("f", "e-1", "effect.dispatched", attempt=3)):
        post(agent, [report])
    permissions = Attempt.objects.order_by("number").values_list("permission", flat=True)
    assert list(permissions) == ["used", "used", "observed"]


def every_delivery(reports: Sequence[Any]) -> Iterator[list[list[Any]]]:
    """Every order of the facts, cut into batches in every way."""
    for order in permutations(reports):
        for size in range(len(order)):
            for cuts in combinations(range(1, len(order)), size):
                ends = (0, *cuts, len(order))
                yield [list(order[start:end]) for start, end in pairwise(ends)]


UNKNOWN = Said(
    "a", "e-1", "effect.acknowledged", fields={"outcome": "unknown"}
)  # the earliest mark
OK = Said("b", "e-1", "effect.acknowledged", fields={"outcome": "ok", "external_reference": "9f2"})
ERROR = Said("c", "e-1", "effect.acknowledged", fields={"outcome": "error"})
SECOND_OK = Said("d", "e-1", "effect.acknowledged", attempt=2, fields={"outcome": "ok"})
SECOND_UNKNOWN = Said("e", "e-1", "effect.acknowledged", attempt=2, fields={"outcome": "unknown"})
THIRD = Said("f", "e-1", "effect.dispatched", attempt=3)


@pytest.mark.parametrize(
    ("command", "reports", "expected", "violations"),
    [
        ("", [OK, UNKNOWN, SECOND_OK], ("ok", ["ok", "ok"]), ["acknowledged_twice"]),
        ("", [OK, SECOND_UNKNOWN, THIRD], ("ok", ["ok", "unknown", ""]), []),
        ("unknown", [OK, ERROR], ("ok", ["ok"]), []),
        ("error", [OK, UNKNOWN], ("error", ["error"]), []),
    ],
    ids=[
        "two acknowledged attempts",
        "one acknowledged and two unknown attempts",
        "unknown at first",
        "a command with a known outcome",
    ],
)
def test_a_known_outcome_wins_over_an_unknown_one_in_every_order(
    agent: Caller,
    command: str,
    reports: list[Said],
    expected: tuple[str, list[str]],
    violations: list[str],
) -> None:
    """A recorded violation is never removed, so it must not depend on the order of delivery."""
    agent.session("s")
    effect = agent.plan(session="s")
    agent.dispatch(effect)
    if command:
        agent.acknowledge(effect, outcome=command)
    states = []
    for batches in every_delivery(reports):
        with undone():
            for batch in batches:
                post(agent, batch)
            states.append(stored("s"))
    assert all(state == states[0] for state in states)
    (row,) = states[0]["effects"]
    assert (row["state"], row["violates"]) == ("acknowledged", bool(violations))
    assert (row["outcome"], [attempt["outcome"] for attempt in states[0]["attempts"]]) == expected
    assert [facts.split('"')[3] for _, facts, _ in states[0]["violations"]] == violations
