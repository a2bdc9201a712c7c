"""Checks at dispatch: stop, lease, expiry, agent, digest, quorum, stricter policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from accounts.origin import Origin
from approvals import exemptions
from approvals.digests import (
    BOUND_TARGET_COLUMNS,
    compute_approval_digest,
    compute_preconditions_digest,
    is_same_json,
    may_be_same_target,
)
from approvals.gates import deadlines, gates
from approvals.gates.states import STEP_UPS
from approvals.models import Exemption, Gate
from approvals.policies import inputs, policies
from approvals.policies.engine import (
    PolicyDecision,
    PolicyInput,
    Requirement,
    evaluate_rules,
    is_stricter_requirement,
)
from approvals.policies.policies import ActivePolicy
from approvals.voting import quorum
from approvals.voting.quorum import ApprovalVote
from ledger import permissions
from ledger import stops as ledger_stops
from ledger.commands import Plan
from ledger.permissions import Grant, Refusal
from ledger.store.rows import EffectRow
from ledger.tools import cache
from sessions import fencing


class PolicyEvaluation(NamedTuple):
    """The policy result for one input, and the columns that its effect stores."""

    force: ActivePolicy
    wish: PolicyInput
    decision: PolicyDecision

    @property
    def columns(self) -> dict[str, Any]:
        return {
            "policy_outcome": self.decision.outcome,
            "policy_rule": f"{self.force.name}/{self.decision.rule}",
            "policy_tool_class": f"{self.wish.tool_class}/{self.wish.reversibility}",
            "policy_enforced": self.force.mode == "enforce",
        }


def find_session_denial(agent: UUID, plan: Plan) -> UUID | None:
    """Return the gate on which people denied the same action for the session, or None.

    A target that leaves a column empty could be anything, so a denial also applies where the
    targets may be the same: an agent cannot get past it by naming more or less. On whose behalf the
    agent acts does not matter.
    """
    denied_gates = Gate.objects.filter(
        session=plan.session, status="denied_session", agent=agent, tool=plan.tool
    )
    rows = denied_gates.filter(intent_digest=plan.intent_digest).values_list(
        "id", *(f"effect__{name}" for name in BOUND_TARGET_COLUMNS)
    )
    target = tuple(plan.values.get(name) or "" for name in BOUND_TARGET_COLUMNS)
    return next(
        (
            gate
            for gate, *denied_target in rows.order_by("opened_position")
            if may_be_same_target(target, denied_target)
        ),
        None,
    )


STOPPED_REFUSAL: Final = Refusal(
    "STOPPED", "A stop is in force; do not act. Dispatch again after it is lifted."
)


@dataclass(slots=True)
class DispatchContext:
    """What `check_dispatch` loads for dispatch: the gate to use and the least lease epoch."""

    gate: Gate | None = None
    fence: int | None = None
    same_call: bool = False  # The same call may have happened in another session.


ENDED_SESSION_HINT: Final = (
    "The session has ended. Acquire its lease with `to_compensate` to undo earlier effects."
)


class DispatchArguments(NamedTuple):
    """All arguments about to be used, and whether the intent omits some of them."""

    arguments: Any
    leaves_out: bool


def check_dispatch(
    origin: Origin,
    row: EffectRow,
    preconditions: Mapping[str, Any] | None,
    sent: DispatchArguments | None,
    context: DispatchContext,
) -> Refusal | None:
    """Return why a granted permission cannot be used, or None; fill `context`."""
    loaded = policies.load_plan_context(
        row.project_id,
        row.session_id,
        row.repository_id,
        task=row.task_id,
        intent=row.intent_digest,
    )
    policy, stops, has_session_denial, session_ended, patterns, *_rest = loaded
    context.fence, context.same_call = loaded.fence, loaded.same_call
    stale_lease = fencing.compare_epoch(origin.lease_epoch, loaded.fence, needed=loaded.leased)
    if stale_lease is not None:
        fencing.record_fenced_command(
            origin, row.session_id, stale_lease, kind="effect.dispatched", effect=row.id
        )
        return Refusal(
            "LEASE_LOST",
            f"{stale_lease.sentence} {ENDED_SESSION_HINT}"
            if session_ended
            else stale_lease.sentence,
        )
    if stops and _is_stopped(origin, row):
        return STOPPED_REFUSAL
    now = origin.received_us
    if row.permission == "pending" and permissions.is_permission_expired(row, now):
        deadlines.settle_gate_of_effect(row, now)
    if row.permission != "granted":
        return None
    gate = None
    if row.permission_basis == "ruling":
        gate = Gate.objects.select_for_update().get(id=UUID(hex=row.permission_ref))
        deadlines.settle_gate(row, gate, now)
        if gate.status != "approved":
            return None
    elif permissions.is_permission_expired(row, now):
        permissions.change_permission(row, Grant("none", "expired_unused"), now)
        return None
    if policy is not None and policy.mode == "enforce" and origin.agent != row.agent_id:
        return _OTHER_AGENT
    if sent is not None and row.permission_basis != "observe":
        refusal = _check_arguments(row, sent)
        if refusal is not None:
            return refusal
    if has_session_denial:
        refusal = _check_session_denial(row, gate, now)
        if refusal is not None:
            return refusal
    if gate is None:
        return _check_automatic_permission(origin, row, policy, patterns, context)
    approvals = quorum.load_approvals([gate.id])[gate.id]
    valid_approvals = [approval for approval in approvals if not approval.fault]
    refusal = _revoke_if_unbound(row, gate, preconditions, now)
    if refusal is None and len(valid_approvals) < gate.minimum:
        gates.end_gate(
            row,
            gate,
            "revoked",
            "quorum_lost",
            now,
            more_facts=quorum.build_uncounted_facts(approvals),
        )
        refusal = _QUORUM_LOST
    refusal = refusal or _revoke_if_stricter(
        origin,
        row,
        gate,
        valid_approvals,
        _reevaluate_policy(origin, row, policy, patterns, context),
    )
    if refusal is None:
        context.gate = gate
    return refusal


def check_permission_reuse(
    origin: Origin,
    row: EffectRow,
    preconditions: Mapping[str, Any] | None,
    sent: DispatchArguments | None,
) -> Refusal | None:
    """Return why a used permission cannot serve another attempt, or None.

    The verdict table must allow the attempt, and `check_dispatch` has checked stops. The approval
    must still match the action and satisfy the current rules. A used gate never changes.
    """
    policy, _, has_session_denial, _, patterns, *_rest = policies.load_plan_context(
        row.project_id, row.session_id, row.repository_id
    )
    if policy is not None and policy.mode == "enforce" and origin.agent != row.agent_id:
        return _OTHER_AGENT
    if sent is not None and row.permission_basis != "observe":
        refusal = _check_arguments(row, sent)
        if refusal is not None:
            return refusal
    if has_session_denial:
        plan = Plan(
            row.session_id,
            row.effect_key,
            row.tool,
            row.intent_digest,
            inputs.get_target_columns(row),
        )
        if find_session_denial(row.agent_id, plan) is not None:
            return _SESSION_DENIED
    is_exempted = row.permission_basis == "exemption"
    evaluation = _reevaluate_policy(origin, row, policy, patterns, always=is_exempted)
    if row.permission_basis == "ruling":
        return _check_used_gate(row, preconditions, evaluation)
    if is_exempted and not exemptions.is_exemption_valid(
        UUID(hex=row.permission_ref), origin.received_us
    ):
        return _EXEMPTION_REVOKED
    if evaluation is None or evaluation.decision.outcome == "allow":
        return None
    return (
        None
        if is_exempted
        and _find_exemption(origin, row, evaluation, UUID(hex=row.permission_ref)) is not None
        else _PERMISSION_NEEDED
    )


def _check_used_gate(
    row: EffectRow, preconditions: Mapping[str, Any] | None, evaluation: PolicyEvaluation | None
) -> Refusal | None:
    gate = Gate.objects.filter(id=UUID(hex=row.permission_ref), status="used").first()
    if gate is None:
        return _PERMISSION_NEEDED
    refusal = _check_binding(row, gate, preconditions)
    if refusal is not None:
        return refusal
    valid_approvals = [
        approval for approval in quorum.load_approvals([gate.id])[gate.id] if not approval.fault
    ]
    if len(valid_approvals) < gate.minimum:
        return _QUORUM_LOST
    return (
        _REQUIREMENT_CHANGED
        if evaluation is not None and _requires_more_now(gate, valid_approvals, evaluation)
        else None
    )


def _is_stopped(origin: Origin, row: EffectRow) -> bool:
    """True if a stop covers the effect for its planning or its dispatching agent."""
    stops = ledger_stops.load_stops(row.project_id)
    agents = {row.agent_id, origin.agent}
    return any(
        ledger_stops.find_covering_stop(stops, row.session_id, agent, row.tool, row.id)
        for agent in agents
    )


_OTHER_AGENT: Final = Refusal(
    "NO_PERMISSION",
    "The permission belongs to another agent. Plan your own effect to request it.",
    "digest_mismatch",
)
_ARGUMENTS_CHANGED: Final = Refusal(
    "INTENT_MISMATCH",
    "The `free_text` arguments differ from the plan. Send the planned values or plan again.",
    "digest_mismatch",
)
_ERASED: Final = Refusal(
    "INTENT_MISMATCH",
    "The plan was erased, so your arguments cannot be compared with it. Plan a new effect.",
    "digest_mismatch",
)
_QUORUM_LOST: Final = Refusal(
    "GATE_GONE",
    "The approval is no longer valid: not enough approvers may still vote. Plan the effect again.",
    "quorum_lost",
)
_SESSION_DENIED: Final = Refusal(
    "GATE_DENIED", "The action is denied for this session. Do not act.", "denied_session"
)


def _check_arguments(row: EffectRow, sent: DispatchArguments) -> Refusal | None:
    """Refuse arguments that differ from the plan where the intent omits some of them."""
    planned = inputs.load_plan_body(row.plan_position)
    if not planned:
        return _ERASED
    if not (sent.leaves_out or planned.get("free_text")):
        return None  # the intent holds them all
    return (
        None if is_same_json(planned.get("arguments", {}), sent.arguments) else _ARGUMENTS_CHANGED
    )


def _check_session_denial(row: EffectRow, gate: Gate | None, now: int) -> Refusal | None:
    plan = Plan(
        row.session_id, row.effect_key, row.tool, row.intent_digest, inputs.get_target_columns(row)
    )
    denied_gate = find_session_denial(row.agent_id, plan)
    if denied_gate is None:
        return None
    if gate is not None:
        gates.end_gate(row, gate, "revoked", "denied_session", now)
    permissions.change_permission(row, Grant("denied", "ruling", denied_gate.hex), now)
    return _SESSION_DENIED


_PLAN_CHANGED: Final = Refusal(
    "INTENT_MISMATCH",
    "The plan differs from what people approved. Plan the effect again.",
    "digest_mismatch",
)
_PRECONDITIONS_CHANGED: Final = Refusal(
    "INTENT_MISMATCH",
    "The preconditions differ from the approved ones. Plan again with the current preconditions.",
    "precondition_changed",
)
_REQUIREMENT_CHANGED: Final = Refusal(
    "GATE_GONE",
    "The policy now requires more than was approved. Plan the effect again.",
    "requirement_changed",
)
_EXEMPTION_REVOKED: Final = Refusal(
    "GATE_GONE", "The exemption was revoked. Plan the effect again.", "revoked"
)
_PERMISSION_NEEDED: Final = Refusal(
    "GATE_GONE",
    "The effect now needs approval. Plan it again to request it.",
    "requirement_changed",
)


def _check_binding(
    row: EffectRow, gate: Gate, preconditions: Mapping[str, Any] | None
) -> Refusal | None:
    """Refuse an action that differs from the one that people saw."""
    bound = (
        row.session_id,
        row.agent_id,
        row.tool,
        row.intent_digest,
        inputs.get_target_columns(row),
    )
    if compute_approval_digest(*bound, inputs.load_on_behalf_of(row.session_id)) != gate.digest:
        return _PLAN_CHANGED
    if (
        gate.preconditions_digest
        and compute_preconditions_digest(preconditions) != gate.preconditions_digest
    ):
        return _PRECONDITIONS_CHANGED
    return None


def _revoke_if_unbound(
    row: EffectRow, gate: Gate, preconditions: Mapping[str, Any] | None, now: int
) -> Refusal | None:
    refusal = _check_binding(row, gate, preconditions)
    if refusal is not None:
        gates.end_gate(row, gate, "revoked", refusal.reason, now)
    return refusal


def _revoke_if_stricter(
    origin: Origin,
    row: EffectRow,
    gate: Gate,
    approvals: Sequence[ApprovalVote],
    evaluation: PolicyEvaluation | None,
) -> Refusal | None:
    """Revoke the gate if the current rules require more than was approved."""
    if evaluation is None or not _requires_more_now(gate, approvals, evaluation):
        return None
    gates.end_gate(row, gate, "revoked", "requirement_changed", origin.received_us)
    return _REQUIREMENT_CHANGED


def _requires_more_now(
    gate: Gate, approvals: Sequence[ApprovalVote], evaluation: PolicyEvaluation
) -> bool:
    if evaluation.decision.outcome != "ask":
        return evaluation.decision.outcome == "deny"
    severity = inputs.compute_current_severity(gate)
    required = (evaluation.decision.requirement or Requirement()).strengthened(
        severity.reversibility, severity.risk
    )
    weakest_step_up = min((approval.step_up for approval in approvals), key=STEP_UPS.index)
    met = Requirement.of(gate.requirement).met_by(
        weakest_step_up, min(approval.reason_characters for approval in approvals)
    )
    return required.hash != gate.requirement_hash and is_stricter_requirement(required, met)


def _check_automatic_permission(
    origin: Origin,
    row: EffectRow,
    policy: ActivePolicy | None,
    patterns: int | None,
    context: DispatchContext,
) -> Refusal | None:
    """Withdraw permission given without a vote if it would not be given now.

    Such permission comes from a policy, an exemption or observe mode.
    """
    now, is_exempted = origin.received_us, row.permission_basis == "exemption"
    if is_exempted and not exemptions.is_exemption_valid(UUID(hex=row.permission_ref), now):
        permissions.change_permission(row, Grant("none", "revoked"), now)
        return _EXEMPTION_REVOKED
    evaluation = _reevaluate_policy(origin, row, policy, patterns, context, always=is_exempted)
    if (
        evaluation is None
        or evaluation.decision.outcome == "allow"
        or (is_exempted and _is_still_exempted(origin, row, evaluation))
    ):
        return None
    permissions.change_permission(row, Grant("none", "revoked"), now)
    return _PERMISSION_NEEDED


def _is_still_exempted(origin: Origin, row: EffectRow, evaluation: PolicyEvaluation) -> bool:
    """True if an exemption covers the action now.

    If it is another exemption than before, the permission moves to it, and that counts as one use.
    """
    exemption = _find_exemption(origin, row, evaluation)
    if exemption is None or exemption.id.hex == row.permission_ref:
        return exemption is not None
    if not exemptions.use_exemption(exemption, origin, row.id, row.session_id, row.attempt_count):
        return False
    permissions.change_permission(
        row,
        Grant("granted", "exemption", exemption.id.hex, exemption.ends_at_us),
        origin.received_us,
    )
    return True


def _find_exemption(
    origin: Origin, row: EffectRow, evaluation: PolicyEvaluation, only: UUID | None = None
) -> Exemption | None:
    """Return the exemption that suspends the current rules, or None.

    Its grantors must still be allowed to grant it and have no interest in the action.
    """
    rules = evaluation.decision.asking if evaluation.decision.outcome == "ask" else ()
    retried_effect = row.id if row.attempt_count else None
    scope = (row.session_id, row.agent_id, origin.received_us, retried_effect)
    return exemptions.find_exemption(
        row.project_id, evaluation.wish, rules, *scope, evaluation.decision.suspension, only
    )


def _reevaluate_policy(
    origin: Origin,
    row: EffectRow,
    policy: ActivePolicy | None,
    patterns: int | None,
    context: DispatchContext | None = None,
    *,
    always: bool = False,
) -> PolicyEvaluation | None:
    """Evaluate the active policy again; None if nothing changed since permission.

    Changes are: other rules, another declaration of the tool, other ref patterns of the repository,
    or that the same call may have happened in another session. `always` evaluates in any case.
    """
    if policy is None or policy.mode != "enforce":
        return None
    same_rules = row.policy_enforced and row.policy_rule.startswith(f"{policy.name}/")
    same_tool = row.policy_tool_class == cache.load_tool(row.project_id, row.tool).policy_tool_class
    is_only_call = context is None or not context.same_call
    if (
        not always
        and same_rules
        and same_tool
        and is_only_call
        and row.ref_patterns_version in (None, patterns)
    ):
        return None
    plan = inputs.load_plan_body(row.plan_position)
    policy_input = inputs.build_stored_policy_input(row, origin.source, plan)
    if not plan:  # erased: a missing argument must not let the action pass a rule
        return PolicyEvaluation(
            policy, policy_input, PolicyDecision("deny", "", None, "the plan was erased")
        )
    return PolicyEvaluation(
        policy,
        policy_input,
        evaluate_rules(
            policy.compiled, policy_input, policy.mode, inputs.make_stored_plan_counter(row)
        ),
    )
