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
from tests.approvals.inbox_scenario import Desk

pytestmark = pytest.mark.django_db
BODY = {"session": "s-1", "effect_key": "e-1", "tool": "git.push", "arguments": {"ref": "main"}}


def plan(desk: Desk, key: str) -> dict[str, Any]:
    """Plan the one effect under an idempotency key."""
    answer = desk.agent.post("/effects", BODY, key=key)
    assert answer.status_code in (200, 201), answer.text
    effect: dict[str, Any] = answer.json()
    return effect


def returned(desk: Desk, gate: Gate) -> None:
    desk.answer(gate, "reviewer", "request_changes", "squash it first")


def cancelled(desk: Desk, gate: Gate) -> None:
    assert desk.agent.post(f"/gates/{gate.id}/cancel").status_code == 200


def rejected(desk: Desk, gate: Gate) -> None:
    desk.answer(gate, "reviewer")
    effect = plan(desk, "K1")
    desk.agent.dispatch(effect)
    desk.agent.fail(effect, "rejected")


@pytest.mark.parametrize("ends", [returned, cancelled, rejected])
def test_it_opens_no_gate_and_another_key_does(
    desk: Desk, ends: Callable[[Desk, Gate], None]
) -> None:
    desk.agent.session("s-1")
    first = plan(desk, "K1")
    gate = desk.gate(first)
    ends(desk, gate)
    before = desk.effect(first)
    entries = Entry.objects.count()
    for _ in range(2):
        again = plan(desk, "K1")
        assert (again["answer"], again["permission"]) == ("blocked", before.permission)
    assert (Gate.objects.count(), Entry.objects.count()) == (1, entries)
    assert desk.effect(first).version == before.version

    second_plan = plan(desk, "K2")
    assert (second_plan["answer"], second_plan["permission"]) == ("wait", "pending")
    at = Entry.objects.get(event_id="K2").position
    assert desk.effect(first).plan_position == desk.gate(second_plan).plan_position == at
    desk.agent.post(f"/gates/{desk.gate(second_plan).id}/cancel")
    for key in ("K1", "K2"):
        assert plan(desk, key)["answer"] == "blocked"
    assert Gate.objects.count() == 2
    assert desk.effect(first).plan_position == at, "and never goes back"


def test_permission_that_expired_unused_is_not_requested_by_its_own_request(desk: Desk) -> None:
    desk.agent.session("s-1")
    gate = desk.gate(plan(desk, "K1"))
    desk.answer(gate, "reviewer")
    with time_machine.travel(now_us() / US + gate.valid_for_s + 2, tick=False):
        assert plan(desk, "K1")["answer"] == "wait"
        assert desk.agent.get(f"/gates/{gate.id}").json()["status"] == "expired_unused"
        assert Gate.objects.count() == 1
        assert plan(desk, "K2")["answer"] == "wait"
    assert Gate.objects.count() == 2


def test_an_undecided_plan_is_decided_when_it_comes_again(desk: Desk) -> None:
    """It was ambiguous, and no permission was requested; now it is not."""
    desk.agent.session("s-1")
    other = desk.agent.plan("e-0")
    assert plan(desk, "K1")["answer"] == "ambiguous"
    desk.agent.post(f"/effects/{other['id']}/supersede")
    decided = plan(desk, "K1")
    assert (decided["answer"], decided["permission"]) == ("wait", "pending")
    assert desk.gate(decided).plan_position == Entry.objects.get(event_id="K1").position
