"""What follows from commands and reports: withdrawal, compensation, and what must not be and is
said aloud."""

from typing import Any

import pytest

from journal.models import Entry, Outbox
from ledger.models import Attempt
from ledger.tools import cache, registry
from ledger.tools.tools_yaml import ToolDeclaration
from tests.ledger.command_factories import Lane, violations, word

pytestmark = pytest.mark.django_db


# --- supersede --------------------------------------------------------------------------------------------------------


def test_only_what_has_not_happened_can_be_superseded(lane: Lane) -> None:
    lane.plan("e")
    assert word(lane.supersede("e")) == "done"
    assert lane.supersede("e").status == 200
    assert word(lane.dispatch("e")) == "WRONG_STATE"
    lane.plan("f", "another")
    lane.dispatch("f", intent="another")
    assert word(lane.supersede("f")) == "WRONG_STATE"
    lane.fail("f", "timeout")
    assert word(lane.supersede("f")) == "WRONG_STATE"
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
    assert word(lane.plan("e", "e")) == "done"


def test_it_stays_compensated_when_its_own_acknowledgement_comes_last(lane: Lane) -> None:
    lane.plan("e", "e")
    lane.dispatch("e", intent="e")
    _done(lane, "undo", compensates_id=lane.row("e").id)
    assert lane.row("e").state == "compensated"
    lane.acknowledge("e", outcome="ok")
    assert (lane.row("e").state, lane.row("e").outcome) == ("compensated", "ok")


def test_a_compensation_may_be_reported_done_before_a_command_plans_it(lane: Lane) -> None:
    _done(lane, "e")
    lane.hears("undo", "effect.acknowledged", outcome="ok")
    assert lane.row("e").state == "acknowledged"
    lane.plan("undo", "undo", compensates_id=lane.row("e").id)
    assert lane.row("e").state == "compensated"


def test_a_rejected_compensation_is_not_dispatched_again_beside_another(lane: Lane) -> None:
    _done(lane, "e")
    target = lane.row("e").id
    lane.plan("undo", "undo", compensates_id=target)
    lane.dispatch("undo", intent="undo")
    lane.fail("undo", "rejected")
    lane.plan("undo 2", "undo 2", compensates_id=target)
    lane.plan("undo", "undo")
    assert word(lane.dispatch("undo", intent="undo")) == "COMPENSATION_OPEN"
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


# --- what must not be, and is said aloud ------------------------------------------------------------------------------


@pytest.mark.parametrize("permission", ["pending", "denied"])
@pytest.mark.parametrize("kind", ["effect.dispatched", "effect.acknowledged", "effect.failed"])
def test_what_ran_while_people_had_not_allowed_it_is_bypassed_and_a_violation(
    lane: Lane, permission: str, kind: str
) -> None:
    lane.plan("e")
    lane.holds("e", permission=permission, permission_basis="policy")
    told: dict[str, dict[str, Any]] = {
        "effect.acknowledged": {"outcome": "ok"},
        "effect.failed": {"reason": "error"},
    }
    for repetition in ("1", "2"):
        row = lane.hears("e", kind, id=repetition, **told.get(kind, {}))
    assert (row.permission, row.violates, Attempt.objects.get().permission) == (
        "bypassed",
        True,
        "bypassed",
    )
    assert violations() == ["executed_without_permission"]


def test_what_was_merely_reported_is_observed_and_no_violation(lane: Lane) -> None:
    lane.plan("e")
    assert word(lane.plan("f")) == "ambiguous"
    row = lane.hears("f", "effect.dispatched")
    assert (row.permission, row.permission_basis, row.violates) == ("observed", "observe", False)
    assert violations() == []


def test_a_granted_effect_that_ran_elsewhere_has_spent_its_permission(lane: Lane) -> None:
    lane.plan("e")
    assert lane.hears("e", "effect.dispatched").permission == "used"
    assert word(lane.dispatch("e")) == "ALREADY_DISPATCHED"
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
    lane.holds("e", permission="denied", permission_basis="ruling")
    lane.hears("e", "effect.dispatched")
    notice = Outbox.objects.get()
    assert notice.topic == "integrity"
    assert notice.entry == Entry.objects.get(kind="integrity.violation")
