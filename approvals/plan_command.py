"""Plan an effect: load what decides, decide, write the plan, its permission and the gate.

`plan_with_policy` is the command; the functions follow in the order of its steps. The functions
`find_plan_refusal` and `decide_plan` are pure: they decide from what was loaded, without queries.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from approvals import exemptions
from approvals.gates import gates
from approvals.gates.gates import GateDraft
from approvals.gates.statuses import US
from approvals.models import Exemption
from approvals.policies import policy_evaluation, rate_counters
from approvals.policies.engine import Requirement
from approvals.policies.policy_evaluation import (
    CommandContext,
    PlanPayload,
    PolicyEvaluation,
)
from db.ids import derive_uuid, new_uuid7
from journal.entries import Origin
from ledger import circuit_breakers, commands, permissions, refusals, same_calls
from ledger import stops as ledger_stops
from ledger.circuit_breakers import CircuitOpen
from ledger.commands import CommandResult, Plan, PlannedEffect, is_same_intent
from ledger.permissions import Grant
from ledger.refusals import Refusal
from ledger.store.effect_rows import EffectRow
from ledger.store.reader import load_attempts
from ledger.verdicts import verdict_inputs
from sessions import capacity, heartbeats, writers
from sessions.capacity import PlansThrottled
from sessions.writers import StaleEpoch


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What may refuse a plan. The rows of its session and its effect are locked."""

    command: CommandContext
    effect: PlannedEffect
    stale_lease: StaleEpoch | None = None
    is_stopped: bool = False
    pause: PlansThrottled | CircuitOpen | None = None  # why to plan later


@dataclass(frozen=True, slots=True)
class PermissionContext:
    """What decides the permission of a plan that is not refused."""

    requests_permission: bool
    received_us: int
    payload: PlanPayload  # for a repeated plan with the repository of the accepted target
    gate_id: UUID  # of the gate to open, if people must approve
    evaluation: PolicyEvaluation | None = None  # None: no policy is active
    denied_gate: UUID | None = None  # where people denied the action for the session
    exemption: Exemption | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)  # of the effect, read again


@dataclass(frozen=True, slots=True)
class PlanDecision:
    """What to write for a plan. Without `grant` no permission is given and none is requested."""

    columns: Mapping[str, Any]  # to set besides those of the plan
    grant: Grant | None = None
    exemption: Exemption | None = None  # whose use is the grant
    gate: GateDraft | None = None  # to open, because people must approve


def plan_with_policy(origin: Origin, plan: Plan, payload: PlanPayload) -> CommandResult:
    """Plan an effect and decide its permission; open a gate where people must approve.

    Raises PlansThrottled, CircuitOpen, WriterNotAllowed and RepeatedKey; nothing is stored then.
    """
    context = load_plan_context(origin, plan)
    refusal = find_plan_refusal(plan, context)
    if refusal is not None:
        return _write_plan_refusal(origin, plan, context, refusal)
    permission_context = load_permission_context(origin, plan, payload, context)
    decision = decide_plan(permission_context)
    return _write_plan(origin, plan, context, permission_context, decision)


def load_plan_context(origin: Origin, plan: Plan) -> PlanContext:
    """Load what may refuse a plan, and lock its effect. Three queries for a usual new effect.

    The session's agent, its team and the holder of the live lease of the session or the task, which
    names its epoch, may plan. Raises WriterNotAllowed for other agents and, unless they name
    another epoch, for those that have lost the lease. The caller has locked the session's row.
    """
    identity = derive_uuid(plan.session, plan.effect_key)
    task: UUID | None = plan.values.get("task_id")
    now_us = origin.received_us
    writers.require_writer(origin, plan.session, "effect.planned", task=task, effect=identity)
    command = policy_evaluation.load_command_context(
        origin.project,
        plan.session,
        agent=origin.agent,
        tool=plan.tool,
        now_us=now_us,
        task=task,
        intent=plan.intent_digest,
    )
    if command.policy is not None:
        rate_counters.serialize_rated_plans(origin.project, command.policy.compiled, [plan.tool])
    effect = commands.load_planned_effect(plan, now_us)
    scope = (plan.session, origin.agent, plan.tool, identity)
    pause: PlansThrottled | CircuitOpen | None = None
    if (command.is_throttled or command.circuit_open) and effect.is_undecided:
        pause = capacity.find_throttle(
            origin.agent, plan.session, now_us
        ) or circuit_breakers.find_pause(origin.project, plan.tool, identity, now_us)
    return PlanContext(
        command,
        effect,
        writers.compare_epoch(origin.lease_epoch, command.fence, needed=command.leased),
        command.has_stops and ledger_stops.find_stop(origin.project, *scope) is not None,
        pause,
    )


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


def _write_plan_refusal(
    origin: Origin,
    plan: Plan,
    context: PlanContext,
    refusal: Refusal | PlansThrottled | CircuitOpen,
) -> CommandResult:
    """Record a refused plan where its refusal leaves a trace."""
    if isinstance(refusal, Exception):
        raise refusal
    if context.stale_lease is not None:
        writers.record_fenced_command(
            origin, plan.session, context.stale_lease, kind="effect.planned"
        )
    row = context.effect.row
    if row is None:
        row = EffectRow(
            context.effect.id,
            origin.project,
            plan.session,
            origin.agent,
            plan.effect_key,
            0,
            origin.received_us,
            origin.received_us,
            tool=plan.tool,
            intent_digest=plan.intent_digest,
        )
    if refusal is not refusals.KEY_REUSED:
        return CommandResult(row, 409, refusal)
    commands.record_refusal(origin, row, "key_reuse")
    return CommandResult(row, 422, refusal)


def load_permission_context(
    origin: Origin, plan: Plan, payload: PlanPayload, context: PlanContext
) -> PermissionContext:
    """Evaluate the policy for a plan, and load what may grant or deny it without a gate.

    A repeated plan keeps the accepted target, whatever target the repetition names. Its permission
    is decided for the agent that plans now, by the current rules and ref patterns.
    """
    command, effect = context.command, context.effect
    requests_permission, row = effect.requests_permission, effect.row
    target, columns = plan.values, {}
    if row is not None and effect.is_repeated and requests_permission:
        target, repository = policy_evaluation.load_current_target(row)
        payload = replace(payload, repository=repository)
        names = ("ref_class", "ref_patterns_version")
        columns = {"agent_id": origin.agent} | {name: target[name] for name in names}
    evaluation, denied_gate, exemption = None, None, None
    if command.policy is not None and (requests_permission or not effect.is_repeated):
        evaluation = policy_evaluation.evaluate_plan(command.policy, origin, plan, target, payload)
    if command.has_session_denial and requests_permission:
        action = (plan.session, origin.agent, plan.tool, plan.intent_digest)
        denied_gate = gates.find_session_denial(*action, target)
    if (
        evaluation is not None
        and evaluation.requires_approval
        and requests_permission
        and denied_gate is None
    ):
        exemption = exemptions.find_exemption(
            origin.project,
            evaluation.policy_input,
            evaluation.decision.asking,
            plan.session,
            origin.agent,
            origin.received_us,
            effect.id if row is not None and row.attempt_count else None,
            evaluation.decision.suspension,
        )
    return PermissionContext(
        requests_permission,
        origin.received_us,
        payload,
        new_uuid7(),
        evaluation,
        denied_gate,
        exemption,
        columns,
    )


def decide_plan(context: PermissionContext) -> PlanDecision:
    """Decide the permission of a plan.

    A denial for the session counts more than the policy. Without an enforced policy everything is
    granted. An exemption grants what rules ask people about, and never what a rule denies.
    """
    evaluation = context.evaluation
    columns = {**context.columns, **(evaluation.columns if evaluation is not None else {})}
    if not context.requests_permission:
        return PlanDecision(columns)
    if context.denied_gate is not None:
        return PlanDecision(columns, Grant("denied", "ruling", context.denied_gate.hex))
    if evaluation is None or evaluation.policy.mode == "observe":
        return PlanDecision(columns, Grant("granted", "observe"))
    if not evaluation.requires_approval:
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
    grant = Grant("pending", "policy", gate.id.hex, decide_by_us)
    return PlanDecision(columns, grant, gate=gate)


def _write_plan(
    origin: Origin,
    plan: Plan,
    context: PlanContext,
    permission_context: PermissionContext,
    decision: PlanDecision,
) -> CommandResult:
    """Write the plan, its permission and the gate, and what else follows from the plan.

    Raises CircuitOpen if another plan has become the trial of the tool's breaker since the load.
    Links the effect to the same calls of other sessions, while their outcome is unknown.
    """
    write = _write_repeated_plan if context.effect.is_repeated else _write_first_plan
    result, gate = write(origin, plan, context.effect, permission_context, decision)
    row, command = result.effect, context.command
    if command.circuit_open and result.position and row.permission in ("granted", "pending"):
        circuit_breakers.admit_trial(row, origin.received_us)
    if gate is not None:
        gates.open_gate(gate, origin, permission_context.payload, row, result.position)
    if row.permission == "pending" and permissions.is_permission_expired(row, origin.received_us):
        gates.settle_gate_of_effect(row, origin.received_us)
    if command.fence is not None and result.created:
        heartbeats.record_progress(
            origin.project, plan.session, origin.lease_epoch, plan.values.get("task_id")
        )
    if command.same_call and result.position:
        result.same_calls = same_calls.link_same_calls(row, result.position)
    return result


def _write_first_plan(
    origin: Origin,
    plan: Plan,
    effect: PlannedEffect,
    context: PermissionContext,
    decision: PlanDecision,
) -> tuple[CommandResult, GateDraft | None]:
    """Write the first accepted plan of an effect; return the gate to open.

    An effect that has a permission from earlier reports gets this one only if it still needs it.
    """
    row, now_us = effect.row, origin.received_us
    if decision.grant is not None and (row is None or row.permission == "none"):
        decision = _claim_exemption(origin, plan.session, effect, context, decision)
        result = commands.record_first_plan(origin, plan, effect, decision.columns, decision.grant)
        return result, decision.gate
    result = commands.record_first_plan(origin, plan, effect, decision.columns, None)
    if decision.grant is None or not commands.is_permission_needed(result.effect, now_us):
        return result, None
    decision = _claim_exemption(origin, plan.session, effect, context, decision)
    return result, _change_permission(result.effect, decision, now_us)


def _write_repeated_plan(
    origin: Origin,
    plan: Plan,
    effect: PlannedEffect,
    context: PermissionContext,
    decision: PlanDecision,
) -> tuple[CommandResult, GateDraft | None]:
    """Write a repeated plan, which may request permission again; return the gate to open."""
    row, now_us = effect.row, origin.received_us
    if row is None:
        raise AssertionError("A repeated plan has a stored effect.")
    position = commands.record_repeated_plan(origin, row)
    if decision.grant is None or position is None:
        return CommandResult(row, open_effect=effect.open_effect), None
    result = CommandResult(row, open_effect=effect.open_effect, position=position)
    if verdict_inputs.is_in_doubt(row):
        attempts = load_attempts([row.id])[row.id]
        commands.give_up_attempt(row, attempts, now_us)
        # An attempt before the last happened, so no permission is needed.
        if row.state == "acknowledged":
            return result, None
    gates.settle_last_gate(row, now_us)
    decision = _claim_exemption(origin, plan.session, effect, context, decision)
    commands.replan_effect(row, position, decision.columns)
    return result, _change_permission(row, decision, now_us)


def _claim_exemption(
    origin: Origin,
    session: UUID,
    effect: PlannedEffect,
    context: PermissionContext,
    decision: PlanDecision,
) -> PlanDecision:
    """Count the use of an exemption; decide without it if it has ended since it was loaded."""
    attempt_count = effect.row.attempt_count if effect.row is not None else 0
    if decision.exemption is None or exemptions.use_exemption(
        decision.exemption, origin, effect.id, session, attempt_count
    ):
        return decision
    return decide_plan(replace(context, exemption=None))


def _change_permission(row: EffectRow, decision: PlanDecision, now_us: int) -> GateDraft | None:
    if decision.grant is not None:
        permissions.change_permission(row, decision.grant, now_us)
    return decision.gate
