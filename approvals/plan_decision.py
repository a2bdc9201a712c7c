"""Decide a plan: pure functions of what was loaded. No queries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from approvals.gates.gates import GateDraft
from approvals.gates.statuses import PERMISSION_OF_STATUS, US
from approvals.models import Exemption
from approvals.plan_context import PermissionContext, PlanContext
from approvals.policies.engine import Requirement
from ledger import refusals
from ledger.circuit_breakers import CircuitOpen
from ledger.commands import Plan, is_same_intent
from ledger.permissions import Grant
from ledger.refusals import Refusal
from sessions.capacity import PlansThrottled


@dataclass(frozen=True, slots=True)
class PlanDecision:
    """What to write for a plan. Without `grant` no permission is given and none is requested."""

    columns: Mapping[str, Any]  # to set besides those of the plan
    grant: Grant | None = None
    exemption: Exemption | None = None  # whose use is the grant
    gate: GateDraft | None = None  # to open, because people must approve


def find_plan_refusal(
    plan: Plan, context: PlanContext
) -> Refusal | PlansThrottled | CircuitOpen | None:
    """Return why a plan is not recorded, or None."""
    command, effect = context.command, context.effect
    if context.stale_lease is not None:
        return refusals.refuse_stale_lease(context.stale_lease.sentence, command.session_ended)
    compensates = plan.values.get("compensates_id") is not None
    if command.session_ended and not compensates and effect.is_undecided:
        return refusals.SESSION_ENDED_REFUSAL
    if context.is_stopped:
        return refusals.STOPPED_REFUSAL
    if context.pause is not None:
        return context.pause
    if effect.row is not None and not is_same_intent(effect.row, plan):
        return refusals.KEY_REUSED
    return None


def decide_plan(context: PermissionContext) -> PlanDecision:
    """Decide the permission of a plan.

    A denial for the session counts more than the policy. Without an enforced policy everything is
    granted. An exemption grants what rules ask people about, and never what a rule denies.
    """
    evaluation = context.evaluation
    columns = {**context.columns, **(evaluation.columns if evaluation is not None else {})}
    if not context.asks_permission:
        return PlanDecision(columns)
    if context.denied_gate is not None:
        return PlanDecision(columns, Grant("denied", "ruling", context.denied_gate.hex))
    if evaluation is None or evaluation.policy.mode == "observe":
        return PlanDecision(columns, Grant("granted", "observe"))
    if not evaluation.is_asking:
        is_allowed = evaluation.decision.outcome == "allow"
        return PlanDecision(columns, Grant("granted" if is_allowed else "denied", "policy"))
    exemption = context.exemption
    if exemption is not None:
        grant = Grant("granted", "exemption", exemption.id.hex, exemption.ends_at_us)
        return PlanDecision(columns, grant, exemption)
    requirement = evaluation.decision.requirement or Requirement()
    gate = GateDraft(
        context.gate_id, evaluation.policy.policy_set, evaluation.decision.rule, requirement
    )
    decide_by_us = context.received_us + requirement.decide_within_s * US
    grant = Grant(*PERMISSION_OF_STATUS["pending"], gate.id.hex, decide_by_us)
    return PlanDecision(columns, grant, gate=gate)
