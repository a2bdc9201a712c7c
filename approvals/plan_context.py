"""Load what decides a plan: first what may refuse it, then what decides its permission."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from accounts.origin import Origin
from approvals import exemptions
from approvals.digests import BOUND_TARGET_COLUMNS, may_be_same_target
from approvals.models import Exemption, Gate
from approvals.policies import policies, policy_inputs, rate_counters
from approvals.policies.engine import evaluate_rules
from approvals.policies.policies import ActivePolicy, CommandContext, PolicyEvaluation
from approvals.policies.policy_inputs import PlanPayload
from db.ids import derive_uuid, new_uuid7
from ledger import circuit_breakers, commands
from ledger import stops as ledger_stops
from ledger.circuit_breakers import CircuitOpen
from ledger.commands import Plan, PlannedEffect
from sessions import capacity, fencing, writers
from sessions.capacity import PlansThrottled
from sessions.fencing import StaleEpoch


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

    asks_permission: bool
    received_us: int
    payload: PlanPayload  # for a repeated plan with the repository of the accepted target
    gate_id: UUID  # of the gate to open, if people must approve
    evaluation: PolicyEvaluation | None = None  # None: no policy is active
    denied_gate: UUID | None = None  # where people denied the action for the session
    exemption: Exemption | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)  # of the effect, read again


def load_plan_context(origin: Origin, plan: Plan) -> PlanContext:
    """Load what may refuse a plan, and lock its effect. Three queries for a usual new effect.

    Raises WriterNotAllowed. The caller has locked the session's row.
    """
    identity = derive_uuid(plan.session, plan.effect_key)
    task: UUID | None = plan.values.get("task_id")
    now_us = origin.received_us
    writers.require_writer(origin, plan.session, "effect.planned", task=task, effect=identity)
    command = policies.load_command_context(
        origin.project,
        plan.session,
        agent=origin.agent,
        tool=plan.tool,
        now_us=now_us,
        task=task,
        intent=plan.intent_digest,
    )
    if command.policy is not None:
        rate_counters.lock_rate_counts(origin.project, command.policy.compiled, [plan.tool])
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
        fencing.compare_epoch(origin.lease_epoch, command.fence, needed=command.leased),
        command.has_stops and ledger_stops.find_stop(origin.project, *scope) is not None,
        pause,
    )


def load_permission_context(
    origin: Origin, plan: Plan, payload: PlanPayload, context: PlanContext
) -> PermissionContext:
    """Evaluate the policy for a plan, and load what may grant or deny it without a gate.

    A repeated plan keeps the accepted target, whatever target the repetition names. Its permission
    is decided for the agent that plans now, by the current rules and ref patterns.
    """
    command, effect = context.command, context.effect
    asks_permission, row = effect.asks_permission, effect.row
    target, columns = plan.values, {}
    if row is not None and effect.is_repeated and asks_permission:
        target, repository = policy_inputs.load_current_target(row)
        payload = replace(payload, repository=repository)
        names = ("ref_class", "ref_patterns_version")
        columns = {"agent_id": origin.agent} | {name: target[name] for name in names}
    evaluation, denied_gate, exemption = None, None, None
    if command.policy is not None and (asks_permission or not effect.is_repeated):
        evaluation = _evaluate_policy(command.policy, origin, plan, target, payload)
    if command.has_session_denial and asks_permission:
        action = (plan.session, origin.agent, plan.tool, plan.intent_digest)
        denied_gate = find_session_denial(*action, target)
    if evaluation is not None and evaluation.is_asking and asks_permission and denied_gate is None:
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
        asks_permission,
        origin.received_us,
        payload,
        new_uuid7(),
        evaluation,
        denied_gate,
        exemption,
        columns,
    )


def find_session_denial(
    session: UUID, agent: UUID, tool: str, intent: str, target: Mapping[str, Any]
) -> UUID | None:
    """Return the gate on which people denied the same action for the session, or None.

    A target that leaves a column empty could be anything, so a denial also applies where the
    targets may be the same: an agent cannot get past it by naming more or less. On whose behalf the
    agent acts does not matter.
    """
    denied_gates = Gate.objects.filter(
        session=session, status="denied_session", agent=agent, tool=tool, intent_digest=intent
    )
    rows = denied_gates.values_list("id", *(f"effect__{name}" for name in BOUND_TARGET_COLUMNS))
    bound = tuple(target.get(name) or "" for name in BOUND_TARGET_COLUMNS)
    return next(
        (
            gate
            for gate, *denied_target in rows.order_by("opened_position")
            if may_be_same_target(bound, denied_target)
        ),
        None,
    )


def _evaluate_policy(
    policy: ActivePolicy,
    origin: Origin,
    plan: Plan,
    target: Mapping[str, Any],
    payload: PlanPayload,
) -> PolicyEvaluation:
    """Evaluate the rules. They read rates and labels only where a rule needs them."""
    policy_input = policy_inputs.build_policy_input(
        origin.project, plan.session, origin.source, plan.tool, target, payload
    )
    count = policy_inputs.make_plan_counter(origin, plan)
    decision = evaluate_rules(policy.compiled, policy_input, policy.mode, count)
    return PolicyEvaluation(policy, policy_input, decision)
