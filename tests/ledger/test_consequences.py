"""Consequences of commands and reports: supersession, compensation and violations."""

from typing import Any

import pytest

from journal.models import Entry, Outbox
from ledger.models import Attempt
from ledger.tools import cache, registry
from ledger.tools.tools_yaml import ToolDeclaration
from tests.ledger.command_factories import Lane, short_answer, violations

pytestmark = pytest.mark.django_db


# --- supersede --------------------------------------------------------------------------------------------------------


def test_only_an_effect_that_did_not_happen_can_be_superseded(lane: Lane) -> None:
    lane.plan("e")
    assert short_answer(lane.supersede("e")) == "done"
    assert lane.supersede("e").status == 200
    assert short_answer(lane.dispatch("e")) == "WRONG_STATE"
    lane.plan("f", "another")
    lane.dispatch("f", intent="another")
    assert short_answer(lane.supersede("f")) == "WRONG_STATE"
    lane.fail("f", "timeout")
    assert short_answer(lane.supersede("f")) == "WRONG_STATE"
    lane.plan("g", "a third")
    lane.dispatch("g", intent="a third")
    lane.fail("g", "rejected")
    assert lane.supersede("g").status == 200
    assert lane.row("g").state == "superseded"


# --- compensation -----------------------------------------------------------------------------------------------------


def _done(lane: Lane, key: str, **values: Any) -> None:
    lane.plan(key, key, **values)
    lane.dispatch(key, intent=key)
    lane.acknowledge(key)


def test_an_acknowledged_compensation_compensates(lane: Lane) -> None:
    _done(lane, "e")
    _done(lane, "undo", compensates_id=lane.row("e").id)
    assert (lane.row("e").state, lane.row("undo").state) == ("compensated", "acknowledged")
    assert short_answer(lane.plan("e", "e")) == "done"


def test_an_effect_stays_compensated_when_its_acknowledgement_comes_last(lane: Lane) -> None:
    lane.plan("e", "e")
    lane.dispatch("e", intent="e")
    _done(lane, "undo", compensates_id=lane.row("e").id)
    assert lane.row("e").state == "compensated"
    lane.acknowledge("e", outcome="ok")
    assert (lane.row("e").state, lane.row("e").outcome) == ("compensated", "ok")


def test_a_compensation_may_be_reported_done_before_a_command_plans_it(lane: Lane) -> None:
    _done(lane, "e")
    lane.apply_report("undo", "effect.acknowledged", outcome="ok")
    assert lane.row("e").state == "acknowledged"
    lane.plan("undo", "undo", compensates_id=lane.row("e").id)
    assert lane.row("e").state == "compensated"


def test_a_rejected_compensation_is_not_dispatched_while_another_is_open(lane: Lane) -> None:
    _done(lane, "e")
    target = lane.row("e").id
    lane.plan("undo", "undo", compensates_id=target)
    lane.dispatch("undo", intent="undo")
    lane.fail("undo", "rejected")
    lane.plan("undo 2", "undo 2", compensates_id=target)
    lane.plan("undo", "undo")
    assert short_answer(lane.dispatch("undo", intent="undo")) == "COMPENSATION_OPEN"
    lane.supersede("undo 2")
    assert lane.dispatch("undo", intent="undo").status == 200


@pytest.mark.parametrize(
    "step", ["nothing", "dispatch", "fail rejected", "fail timeout", "supersede"]
)
def test_only_an_acknowledged_compensation_compensates(lane: Lane, step: str) -> None:
    _done(lane, "e")
    lane.plan("undo", "undo", compensates_id=lane.row("e").id)
    if step.startswith("fail"):
        lane.dispatch("undo", intent="undo")
        lane.fail("undo", step.removeprefix("fail "))
    elif step == "dispatch":
        lane.dispatch("undo", intent="undo")
    elif step == "supersede":
        lane.supersede("undo")
    assert lane.row("e").state == "acknowledged"


# --- violations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("permission", ["pending", "denied"])
@pytest.mark.parametrize("kind", ["effect.dispatched", "effect.acknowledged", "effect.failed"])
def test_an_effect_that_ran_without_approval_is_bypassed_and_a_violation(
    lane: Lane, permission: str, kind: str
) -> None:
    lane.plan("e")
    lane.set_permission("e", permission=permission, permission_basis="policy")
    fields: dict[str, dict[str, Any]] = {
        "effect.acknowledged": {"outcome": "ok"},
        "effect.failed": {"reason": "error"},
    }
    for repetition in ("1", "2"):
        row = lane.apply_report("e", kind, id=repetition, **fields.get(kind, {}))
    assert (row.permission, row.violates, Attempt.objects.get().permission) == (
        "bypassed",
        True,
        "bypassed",
    )
    assert violations() == ["executed_without_permission"]


def test_an_effect_that_was_only_reported_is_observed_and_no_violation(lane: Lane) -> None:
    lane.plan("e")
    assert short_answer(lane.plan("f")) == "ambiguous"
    row = lane.apply_report("f", "effect.dispatched")
    assert (row.permission, row.permission_basis, row.violates) == ("observed", "observe", False)
    assert violations() == []


def test_a_granted_effect_that_is_reported_as_run_has_used_its_permission(lane: Lane) -> None:
    lane.plan("e")
    assert lane.apply_report("e", "effect.dispatched").permission == "used"
    assert short_answer(lane.dispatch("e")) == "ALREADY_DISPATCHED"
    assert violations() == []


def test_two_acknowledged_attempts_are_a_violation_once(lane: Lane) -> None:
    lane.plan("e")
    lane.dispatch("e")
    lane.fail("e", "rejected")
    lane.plan("e")
    lane.dispatch("e")
    lane.acknowledge("e", attempt=2)
    assert violations() == []
    for attempt in (1, 1, 2):
        lane.acknowledge("e", attempt=attempt)
    assert violations() == ["acknowledged_twice"]
    assert lane.row("e").violates


def test_a_claim_laxer_than_the_declaration_is_a_violation_and_never_believed(lane: Lane) -> None:
    registry.declare_tools(
        lane.agent.project, [ToolDeclaration("deploy", "idempotency_key", "irreversible")]
    )
    cache.clear_tool_cache()
    lane.plan("e", "1", tool="deploy", claimed_class="opaque")
    lane.plan("f", "2", tool="deploy", claimed_class="idempotency_key")
    lane.plan("g", "3", tool="undeclared", claimed_class="read_only")
    assert violations() == []
    lane.plan("h", "4", tool="deploy", claimed_class="read_only")
    assert violations() == ["class_claim"]
    assert [lane.row(key).violates for key in "efgh"] == [False, False, False, True]
    assert lane.row("h").claimed_class == "read_only"


def test_a_violation_is_put_in_the_outbox_with_its_entry(lane: Lane) -> None:
    lane.plan("e")
    lane.set_permission("e", permission="denied", permission_basis="ruling")
    lane.apply_report("e", "effect.dispatched")
    notification = Outbox.objects.get()
    assert notification.topic == "integrity"
    assert notification.entry == Entry.objects.get(kind="integrity.violation")
