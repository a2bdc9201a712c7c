"""Decide a dispatch: pure functions of what was loaded. No queries.

`find_dispatch_refusal` decides the request, `decide_permission_use` the permission, and
`decide_attempt` the next attempt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from approvals.digests import compute_preconditions_digest, is_same_json
from approvals.dispatch_context import (
    AttemptContext,
    DispatchContext,
    DispatchRequest,
    PermissionUse,
)
from approvals.gates.statuses import STEP_UPS
from approvals.models import Exemption, Gate
from approvals.policies.engine import Requirement, is_stricter_requirement
from approvals.voting.quorum import ApprovalVote
from ledger import refusals
from ledger.dispatch import FIRST_ATTEMPT, NextAttempt, decide_next_attempt
from ledger.permissions import Grant
from ledger.refusals import Refusal

WITHDRAWN: Final = Grant("none", "revoked")


@dataclass(frozen=True, slots=True)
class PermissionDecision:
    """Whether a permission may be used, and what becomes of it and its gate."""

    refusal: Refusal | None = None
    grant: Grant | None = None  # replaces the permission
    exemption: Exemption | None = None  # whose use is the new permission
    revokes_gate: bool = False  # for the reason of the refusal


@dataclass(frozen=True, slots=True)
class AttemptDecision:
    """The next attempt, or why there is none."""

    refusal: Refusal | None = None
    withdraws: bool = False  # the used permission no longer applies, so a new one is needed
    is_repeated: bool = False  # the request opened the present attempt
    attempt: NextAttempt = FIRST_ATTEMPT


def find_dispatch_refusal(context: DispatchContext) -> Refusal | None:
    """Return why a request to dispatch is refused whatever the permission is, or None."""
    if context.intent_digest != context.row.intent_digest:
        return refusals.INTENT_CHANGED
    if context.stale_lease is not None:
        return refusals.refuse_stale_lease(
            context.stale_lease.sentence, context.command.session_ended
        )
    return refusals.STOPPED_REFUSAL if context.is_stopped else None


def decide_permission_use(
    request: DispatchRequest, context: DispatchContext, use: PermissionUse
) -> PermissionDecision:
    """Decide whether a granted permission may be used now.

    A vote must still count, and still be about this action. Permission without a vote, from a
    policy, an exemption or observe mode, is withdrawn if it would not be given now.
    """
    refusal = _find_common_refusal(request, context, use)
    if refusal is refusals.DENIED_FOR_SESSION and use.denied_gate is not None:
        grant = Grant("denied", "ruling", use.denied_gate.hex)
        return PermissionDecision(refusal, grant, revokes_gate=use.gate is not None)
    if refusal is not None:
        return PermissionDecision(refusal)
    if use.gate is not None:
        refusal = _check_gate(request, use, use.gate)
        return PermissionDecision(refusal, revokes_gate=refusal is not None)
    is_exempted = context.row.permission_basis == "exemption"
    if is_exempted and not use.is_exemption_valid:
        return PermissionDecision(refusals.EXEMPTION_REVOKED, WITHDRAWN)
    if use.evaluation is None or use.evaluation.decision.outcome == "allow":
        return PermissionDecision()
    exemption = use.exemption
    if exemption is None:
        return PermissionDecision(refusals.APPROVAL_NEEDED, WITHDRAWN)
    if exemption.id.hex == context.row.permission_ref:
        return PermissionDecision()
    grant = Grant("granted", "exemption", exemption.id.hex, exemption.ends_at_us)
    return PermissionDecision(grant=grant, exemption=exemption)


def decide_attempt(
    request: DispatchRequest, context: DispatchContext, attempt: AttemptContext
) -> AttemptDecision:
    """Decide the next attempt of an effect whose permission is settled."""
    row = context.row
    current = context.attempts.get(row.attempt_count)
    if attempt.is_repeated:
        return AttemptDecision(is_repeated=True)
    if current is not None and current.is_open and request.replays is None:
        return AttemptDecision(refusals.ALREADY_DISPATCHED)
    following = decide_next_attempt(row, request.replays, attempt.verdict)
    if following.refusal is not None:
        return AttemptDecision(following.refusal)
    if following.again and attempt.reuse is not None:
        refusal = _find_reuse_refusal(request, context, attempt.reuse)
        if refusal is not None:
            return AttemptDecision(refusal, withdraws=refusal.code == "GATE_GONE")
    elif row.permission != "granted":
        return AttemptDecision(refusals.refuse_without_permission(row))
    if attempt.has_open_compensation:
        return AttemptDecision(refusals.COMPENSATION_OPEN)
    return AttemptDecision(attempt=following)


def _find_reuse_refusal(
    request: DispatchRequest, context: DispatchContext, use: PermissionUse
) -> Refusal | None:
    """Return why a used permission cannot serve another attempt, or None.

    The verdict table allows the attempt. The approval must still match the action and satisfy the
    current rules. A used gate never changes.
    """
    refusal = _find_common_refusal(request, context, use)
    if refusal is not None:
        return refusal
    if context.row.permission_basis == "ruling":
        return refusals.APPROVAL_NEEDED if use.gate is None else _check_gate(request, use, use.gate)
    if context.row.permission_basis == "exemption" and not use.is_exemption_valid:
        return refusals.EXEMPTION_REVOKED
    is_allowed = use.evaluation is None or use.evaluation.decision.outcome == "allow"
    return None if is_allowed or use.exemption is not None else refusals.APPROVAL_NEEDED


def _find_common_refusal(
    request: DispatchRequest, context: DispatchContext, use: PermissionUse
) -> Refusal | None:
    """Return the refusal for another agent, other arguments or a denial for the session."""
    policy = context.command.policy
    if policy is not None and policy.mode == "enforce" and context.agent != context.row.agent_id:
        return refusals.PERMISSION_OF_OTHER_AGENT
    sent, plan = request.arguments, use.plan
    if sent is not None and plan is not None:
        if not plan:
            return refusals.PLAN_ERASED
        # Otherwise the intent holds all of the arguments.
        omits_some = sent.leaves_out or plan.get("free_text")
        if omits_some and not is_same_json(plan.get("arguments", {}), sent.arguments):
            return refusals.ARGUMENTS_CHANGED
    return None if use.denied_gate is None else refusals.DENIED_FOR_SESSION


def _check_gate(request: DispatchRequest, use: PermissionUse, gate: Gate) -> Refusal | None:
    """Refuse an action that differs from the one people saw, or that needs more approval now."""
    if use.digest != gate.digest:
        return refusals.PLAN_CHANGED
    if (
        gate.preconditions_digest
        and compute_preconditions_digest(request.preconditions) != gate.preconditions_digest
    ):
        return refusals.PRECONDITIONS_CHANGED
    valid_approvals = [approval for approval in use.approvals if not approval.fault]
    if len(valid_approvals) < gate.minimum:
        return refusals.QUORUM_LOST
    return refusals.REQUIREMENT_CHANGED if _requires_more_now(use, gate, valid_approvals) else None


def _requires_more_now(use: PermissionUse, gate: Gate, approvals: Sequence[ApprovalVote]) -> bool:
    if use.evaluation is None or use.severity is None:
        return use.evaluation is not None and use.evaluation.decision.outcome == "deny"
    required = (use.evaluation.decision.requirement or Requirement()).strengthened(
        use.severity.reversibility, use.severity.risk
    )
    weakest_step_up = min((approval.step_up for approval in approvals), key=STEP_UPS.index)
    met = Requirement.of(gate.requirement).met_by(
        weakest_step_up, min(approval.reason_characters for approval in approvals)
    )
    return required.hash != gate.requirement_hash and is_stricter_requirement(required, met)
