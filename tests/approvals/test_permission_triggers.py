"""The constraints of permission, effects and attempts, each violated once in the database."""

from collections.abc import Callable
from typing import Any

import pytest

from approvals.models import Gate
from ledger.models import Attempt, Effect
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.test_gate_triggers import gate, refused
from tests.rows_with_entries import change_gates

__all__ = ["gate"]
pytestmark = pytest.mark.django_db


def test_permission_by_ruling_needs_an_approved_gate(inbox: InboxScenario, gate: Gate) -> None:
    forged = {"permission": "granted", "permission_basis": "ruling"}
    constraint = "permission_by_ruling_has_an_approved_gate"
    refused(constraint, lambda: Effect.objects.update(**forged))
    refused(
        constraint, lambda: Effect.objects.update(permission="granted", permission_basis="policy")
    )
    effect = Effect.objects.get()
    effect.pk, effect.effect_key, effect.permission, effect.permission_basis = (
        gate.id,
        "forged",
        "granted",
        "ruling",
    )
    refused("permission_by_ruling_is_never_inserted", lambda: effect.save(force_insert=True))


DISPATCHED = {"permission": "used", "state": "dispatched", "attempt_count": 1}


def forge(**values: Any) -> Callable[[], Any]:
    return lambda: Effect.objects.update(**values)


@pytest.mark.parametrize("answer", ["", "request_changes", "deny"])
def test_permission_is_used_only_after_it_was_given(
    inbox: InboxScenario, gate: Gate, answer: str
) -> None:
    """Pending, none or denied: the attempt that a dispatch by command needs cannot be inserted."""
    if answer:
        inbox.answer(gate, "reviewer", answer, "not now")
    constraint = "permission_is_granted_before_it_is_used"
    refused(constraint, forge(**DISPATCHED))
    refused(constraint, forge(permission="used"))
    refused(
        constraint, forge(permission="used", state="acknowledged", outcome="ok", attempt_count=1)
    )
    Effect.objects.update(
        **{**DISPATCHED, "permission": "observed"}
    )  # a mere report is never refused


def test_permission_that_was_given_is_used(inbox: InboxScenario, gate: Gate) -> None:
    inbox.answer(gate, "reviewer")
    assert forge(**DISPATCHED)() == 1


def rejected(inbox: InboxScenario, planned: dict[str, Any]) -> Gate:
    """Dispatch a planned effect, have it rejected cleanly and request it again: the second gate."""
    inbox.answer(inbox.gate(planned), "reviewer")
    inbox.agent.dispatch(planned)
    inbox.agent.fail(planned, "rejected")
    assert inbox.plan()["permission"] == "pending"
    return inbox.gate(planned)


def test_permission_for_the_next_attempt_is_given_before_it_is_used_too(
    inbox: InboxScenario,
) -> None:
    planned = inbox.plan()
    rejected(inbox, planned)
    refused("permission_is_granted_before_it_is_used", forge(**DISPATCHED | {"attempt_count": 2}))
    late = inbox.agent.post(
        f"/effects/{planned['id']}/acknowledge", {"attempt": 1, "outcome": "ok"}
    )
    assert late.status_code == 202  # the first attempt happened after all, under its own permission
    assert inbox.effect(planned).permission == "used"


def test_permission_that_was_set_aside_is_used_by_the_attempt_it_was_for(
    quiet: InboxScenario,
) -> None:
    """The first attempt was only reported, seemed rejected, and had happened: the next keeps its
    permission."""
    quiet.agent.session("s-1")
    fact = {"session": "s-1", "effect_key": "e-1"}
    batches: list[list[tuple[str, int, dict[str, str]]]] = [
        [("dispatched", 1, {}), ("failed", 1, {"reason": "rejected"})],
        [("acknowledged", 1, {"outcome": "ok"})],
        [("dispatched", 2, {})],
    ]
    for batch in batches:
        items = [
            {
                "id": f"{kind} {attempt}",
                "kind": f"effect.{kind}",
                "attempt": attempt,
                **fact,
                **fields,
            }
            for kind, attempt, fields in batch
        ]
        answer = quiet.agent.report(items)
        assert answer.status_code == 200, answer.text
        quiet.plan()  # requests it again after the rejection; afterwards it changes nothing
    assert list(Attempt.objects.order_by("number").values_list("permission", flat=True)) == [
        "observed",
        "used",
    ]


def test_effects_and_attempts_are_never_deleted(inbox: InboxScenario, gate: Gate) -> None:
    inbox.answer(gate, "reviewer")
    inbox.agent.dispatch(inbox.plan())
    refused("attempt_is_never_deleted", lambda: Attempt.objects.all()._raw_delete("default"))
    refused("effect_is_never_deleted", lambda: Effect.objects.all()._raw_delete("default"))


def test_only_existing_permission_is_set_aside(inbox: InboxScenario, gate: Gate) -> None:
    constraint = "saved_permission_is_the_previous_one"
    refused(constraint, forge(saved_permission="granted"))
    refused(
        f"{constraint}|permission_is_granted_before_it_is_used",
        forge(**DISPATCHED, saved_permission="granted"),
    )
    forge(saved_permission="pending")()
    refused("permission_is_granted_before_it_is_used", forge(**DISPATCHED))


@pytest.mark.parametrize(
    "disguise", [{}, {"state": "failed", "failure_reason": "rejected", "outcome": "error"}]
)
def test_a_denied_plan_stays_denied(
    inbox: InboxScenario, gate: Gate, disguise: dict[str, Any]
) -> None:
    inbox.answer(gate, "reviewer", "deny", "not now")
    forge(**disguise, attempt_count=len(disguise) // 3)()
    for permission in ("granted", "pending", "none"):
        refused(
            "permission_that_was_denied_stays_denied",
            forge(permission=permission, permission_basis="policy"),
        )
    assert not Attempt.objects.exists()


def test_a_plan_denied_after_a_rejection_stays_denied(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    inbox.answer(rejected(inbox, planned), "reviewer", "deny", "not twice")
    assert inbox.plan()["permission"] == "denied"
    refused(
        "permission_that_was_denied_stays_denied",
        forge(permission="granted", permission_basis="policy"),
    )


def test_no_permission_is_granted_while_its_gate_is_open(gate: Gate) -> None:
    forge(permission="none", permission_basis="cancelled")()
    refused("permission_waits_for_its_gate", forge(permission="granted", permission_basis="policy"))
    change_gates(Gate.objects.all(), status="cancelled", ended_at_us=gate.requested_at_us)
    assert forge(permission="granted", permission_basis="policy")() == 1
