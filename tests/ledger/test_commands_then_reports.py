"""Convergence of stories that begin with commands: what is reported afterwards gives one state in every order."""

from itertools import permutations
from typing import Any

import pytest

from ledger.models import Attempt
from tests.ingest.caller import Caller
from tests.ledger.story import Said
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
    """The effect e-1, whose attempt was rejected, or so it seemed, and for whose next one leave stands."""
    agent.session("s")
    effect = agent.plan(session="s")
    agent.dispatch(effect)
    agent.fail(effect, "rejected")
    return agent.plan(session="s")


@pytest.mark.parametrize("told", [SECOND[:1], SECOND[1:2], SECOND[2:], SECOND[::2], SECOND[:2]])
def test_leave_for_the_next_attempt_is_spent_by_it_whenever_the_one_before_turns_out_to_have_happened(
    agent: Caller, told: list[Said]
) -> None:
    assert rejected_and_planned_again(agent)["leave"] == "granted"
    states = []
    for order in permutations([LATE, AGAIN, *told]):
        for batches in ([order], [[said] for said in order]):
            with undone():
                for batch in batches:
                    post(agent, batch)
                states.append(stored("s"))
    assert all(state == states[0] for state in states)
    (effect,) = states[0]["effects"]
    assert (effect["leave"], effect["leave_basis"], effect["leave_aside"]) == ("used", "observe", "")
    assert [row["leave"] for row in states[0]["attempts"]] == ["used", "used"]
    assert "executed_without_leave" not in str(states[0]["violations"])


def test_leave_that_was_set_aside_is_for_one_attempt(agent: Caller) -> None:
    rejected_and_planned_again(agent)
    for said in (LATE, SECOND[0], Said("f", "e-1", "effect.dispatched", attempt=3)):
        post(agent, [said])
    leaves = Attempt.objects.order_by("number").values_list("leave", flat=True)
    assert list(leaves) == ["used", "used", "observed"]
