"""A plan delivered again under its own key, as by a proxy, gets the present state and asks no
one."""

from collections.abc import Callable
from typing import Any

import pytest
import time_machine

from approvals.gates.statuses import US
from approvals.models import Gate
from db.clock import now_us
from journal.models import Entry
from tests.approvals.inbox_scenario import InboxScenario

pytestmark = pytest.mark.django_db
BODY = {"session": "s-1", "effect_key": "e-1", "tool": "git.push", "arguments": {"ref": "main"}}


def plan(inbox: InboxScenario, key: str) -> dict[str, Any]:
    """Plan the one effect under an idempotency key."""
    answer = inbox.agent.post("/effects", BODY, key=key)
    assert answer.status_code in (200, 201), answer.text
    effect: dict[str, Any] = answer.json()
    return effect


def returned(inbox: InboxScenario, gate: Gate) -> None:
    inbox.answer(gate, "reviewer", "request_changes", "squash it first")


def cancelled(inbox: InboxScenario, gate: Gate) -> None:
    assert inbox.agent.post(f"/gates/{gate.id}/cancel").status_code == 200


def rejected(inbox: InboxScenario, gate: Gate) -> None:
    inbox.answer(gate, "reviewer")
    effect = plan(inbox, "K1")
    inbox.agent.dispatch(effect)
    inbox.agent.fail(effect, "rejected")


@pytest.mark.parametrize("ends", [returned, cancelled, rejected])
def test_it_opens_no_gate_and_another_key_does(
    inbox: InboxScenario, ends: Callable[[InboxScenario, Gate], None]
) -> None:
    inbox.agent.session("s-1")
    first = plan(inbox, "K1")
    gate = inbox.gate(first)
    ends(inbox, gate)
    before = inbox.effect(first)
    entries = Entry.objects.count()
    for _ in range(2):
        again = plan(inbox, "K1")
        assert (again["answer"], again["permission"]) == ("blocked", before.permission)
    assert (Gate.objects.count(), Entry.objects.count()) == (1, entries)
    assert inbox.effect(first).version == before.version

    second_plan = plan(inbox, "K2")
    assert (second_plan["answer"], second_plan["permission"]) == ("wait", "pending")
    at = Entry.objects.get(event_id="K2").position
    assert inbox.effect(first).plan_position == inbox.gate(second_plan).plan_position == at
    inbox.agent.post(f"/gates/{inbox.gate(second_plan).id}/cancel")
    for key in ("K1", "K2"):
        assert plan(inbox, key)["answer"] == "blocked"
    assert Gate.objects.count() == 2
    assert inbox.effect(first).plan_position == at, "and never goes back"


def test_permission_that_expired_unused_is_not_requested_by_its_own_request(
    inbox: InboxScenario,
) -> None:
    inbox.agent.session("s-1")
    gate = inbox.gate(plan(inbox, "K1"))
    inbox.answer(gate, "reviewer")
    with time_machine.travel(now_us() / US + gate.valid_for_s + 2, tick=False):
        assert plan(inbox, "K1")["answer"] == "wait"
        assert inbox.agent.get(f"/gates/{gate.id}").json()["status"] == "expired_unused"
        assert Gate.objects.count() == 1
        assert plan(inbox, "K2")["answer"] == "wait"
    assert Gate.objects.count() == 2


def test_an_undecided_plan_is_decided_when_it_comes_again(inbox: InboxScenario) -> None:
    """It was ambiguous, and no permission was requested; now it is not."""
    inbox.agent.session("s-1")
    other = inbox.agent.plan("e-0")
    assert plan(inbox, "K1")["answer"] == "ambiguous"
    inbox.agent.post(f"/effects/{other['id']}/supersede")
    decided = plan(inbox, "K1")
    assert (decided["answer"], decided["permission"]) == ("wait", "pending")
    assert inbox.gate(decided).plan_position == Entry.objects.get(event_id="K1").position
