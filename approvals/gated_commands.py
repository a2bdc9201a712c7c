"""Service functions that grant or deny permission to plan and dispatch effects.

`plan`, `dispatch_with_policy`, `supersede_with_gates` and `acknowledge_with_gates` are the
commands; `classify_observation` classifies effects that were only reported;
`end_gates_of_moved_effects` closes the gates of effects that happened without waiting. Votes of
people are written by approvals/voting/votes.py.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Q

from accounts.origin import Origin
from approvals import dispatch_checks, exemptions
from approvals.digests import compute_approval_digest
from approvals.dispatch_checks import (
    ENDED_SESSION_HINT,
    STOPPED_REFUSAL,
    DispatchArguments,
    DispatchContext,
    PolicyEvaluation,
    find_session_denial,
)
from approvals.gates import deadlines, gates
from approvals.gates.gates import GateDraft
from approvals.gates.states import OPEN_STATUSES, PERMISSION_OF_STATUS, US
from approvals.models import Gate
from approvals.policies import inputs, policies, rate_counters
from approvals.policies.engine import Requirement, evaluate_rules
from approvals.policies.inputs import PlanPayload
from approvals.policies.policies import ActivePolicy
from db.ids import derive_uuid, new_uuid7
from journal.models import Entry
from journal.order_keys import is_command_mark
from ledger import circuit_breakers, commands, permissions, same_calls
from ledger import dispatch as ledger_dispatch
from ledger import stops as ledger_stops
from ledger.commands import CommandResult, Plan
from ledger.fold.apply import Observation
from ledger.models import Attempt
from ledger.permissions import Grant, Refusal
from ledger.states import MOVED_PERMISSIONS
from ledger.store import writer
from ledger.store.rows import EffectRow
from sessions import capacity, fencing, heartbeats, speakers


def plan_with_policy(origin: Origin, plan: Plan, payload: PlanPayload) -> CommandResult:
    """Plan an effect and decide its permission; open a gate where people must approve.

    Raises capacity.Paced and breakers.Paused; nothing is stored then.
    """
    identity = derive_uuid(plan.session, plan.effect_key)
    agent, tool, now_us = origin.agent, plan.tool, origin.received_us
    task: UUID | None = plan.values.get("task_id")
    speakers.require_writer(origin, plan.session, "effect.planned", task=task, effect=identity)
    context = policies.load_plan_context(
        origin.project,
        plan.session,
        agent=agent,
        tool=tool,
        now_us=now_us,
        task=task,
        intent=plan.intent_digest,
    )
    policy, stops, has_session_denial, session_ended, *_rest = context
    stale_lease = fencing.compare_epoch(origin.lease_epoch, context.fence, needed=context.leased)
    if stale_lease is not None:
        fencing.record_fenced_command(origin, plan.session, stale_lease, kind="effect.planned")
        sentence = (
            f"{stale_lease.sentence} {ENDED_SESSION_HINT}"
            if session_ended
            else stale_lease.sentence
        )
        return _refuse_plan(identity, origin, plan, Refusal("LEASE_LOST", sentence))
    if (
        session_ended
        and plan.values.get("compensates_id") is None
        and _needs_permission(identity, origin)
    ):
        return _refuse_plan(identity, origin, plan, SESSION_ENDED_REFUSAL)
    if (
        stops
        and ledger_stops.find_stop(origin.project, plan.session, agent, tool, identity) is not None
    ):
        return _refuse_plan(identity, origin, plan, STOPPED_REFUSAL)
    if (context.paced or context.broken) and _needs_permission(identity, origin):
        _check_pace(origin, plan, identity)
    requests: list[GateDraft] = []
    evaluation = _evaluate_policy(policy, origin, plan, payload) if policy is not None else None
    if evaluation is not None:
        plan.values |= evaluation.columns

    def decide(row: EffectRow | None) -> Grant:
        current_evaluation = evaluation
        if row is not None:
            deadlines.settle_last_gate(row, origin.received_us)
        if row is not None and is_command_mark(row.planned_mark):
            # A repeated plan keeps the accepted target, whatever target the repetition names.
            # Permission is decided for the agent that plans now, by the current rules and ref
            # patterns, and these are stored with the effect.
            payload.repository = inputs.refresh_ref_class(row)
            plan.values, row.agent_id = inputs.get_target_columns(row), origin.agent
            if policy is not None:
                current_evaluation = _evaluate_policy(policy, origin, plan, payload)
                for name, value in current_evaluation.columns.items():
                    setattr(row, name, value)
        denied_gate = find_session_denial(origin.agent, plan) if has_session_denial else None
        if denied_gate is not None:
            return Grant("denied", "ruling", denied_gate.hex)
        if current_evaluation is None or current_evaluation.force.mode == "observe":
            return Grant("granted", "observe")
        return _decide_permission(
            origin,
            plan,
            payload,
            current_evaluation,
            requests,
            row.attempt_count if row is not None else 0,
        )

    result = commands.plan_effect(origin, plan, decide, classify_observation)
    if context.broken and result.position and result.effect.permission in ("granted", "pending"):
        circuit_breakers.admit_trial(result.effect, now_us)
    for request in requests:
        gates.open_gate(request, result.effect, result.position)
    if result.effect.permission == "pending" and permissions.is_permission_expired(
        result.effect, origin.received_us
    ):
        deadlines.settle_gate_of_effect(result.effect, origin.received_us)
    if context.fence is not None and result.created:
        heartbeats.record_progress(origin.project, plan.session, origin.lease_epoch, task)
    if context.same_call and result.position:
        _link_same_calls(result, result.position)
    return result


def _link_same_calls(result: CommandResult, position: int) -> None:
    """Link an effect to calls of other sessions that may already have done the same.

    Links stay after an outcome becomes known; the agent's answer lists only calls whose outcome is
    unknown now.
    """
    row = result.effect
    same_call_effects = same_calls.find_unknown_calls(
        row.project_id, row.session_id, row.tool, row.intent_digest
    )
    if same_call_effects:
        same_calls.link_same_calls(
            row.id, row.project_id, row.session_id, same_call_effects, position
        )
        result.same_calls = tuple(same_call_effects)


def _check_pace(origin: Origin, plan: Plan, identity: UUID) -> None:
    """Raise Paced if the agent reported low capacity, Paused if the tool is failing."""
    paced = capacity.find_throttle(origin.agent, plan.session, origin.received_us)
    if paced is not None:
        raise paced
    circuit_breakers.check_breaker(origin.project, plan.tool, identity, origin.received_us)


def _evaluate_policy(
    policy: ActivePolicy, origin: Origin, plan: Plan, payload: PlanPayload
) -> PolicyEvaluation:
    rate_counters.lock_rate_counts(origin.project, policy.compiled, [plan.tool])
    policy_input = inputs.build_policy_input(
        origin.project, plan.session, origin.source, plan.tool, plan.values, payload
    )
    return PolicyEvaluation(
        policy,
        policy_input,
        evaluate_rules(
            policy.compiled, policy_input, policy.mode, inputs.make_plan_counter(origin, plan)
        ),
    )


def classify_observation(permission: str, is_import: bool, policy_outcome: str) -> Observation:
    """Classify an effect that happened without a command.

    `permission` is the present value (none, pending or denied). `policy_outcome` is the result of
    an enforced policy on the plan (the strictest of several reported plans), or empty. The effect
    was bypassed where people had not approved or had denied it, or where the policy would not have
    allowed it.
    """
    if permission in ("pending", "denied"):
        return Observation("bypassed", "ruling")
    if is_import:
        return Observation("observed", "import")
    if policy_outcome in ("ask", "deny"):
        return Observation("bypassed", "policy")
    return Observation("observed", "policy" if policy_outcome else "observe")


def dispatch_with_policy(
    origin: Origin,
    effect: UUID,
    *,
    process: str,
    asked: Callable[[str], str],
    preconditions: Mapping[str, Any] | None,
    whole: DispatchArguments | None = None,
    replays: int | None = None,
) -> CommandResult:
    """Use the permission and its gate, and open the next attempt, in one transaction.

    `whole` holds the arguments about to be used, if they were sent; `replays` is the attempt of
    unknown outcome that the next one replaces. Raises LookupError when the project has no such
    effect.
    """
    ledger_stops.lock_shared(origin.project)
    context = DispatchContext()

    def check(row: EffectRow) -> Refusal | None:
        return dispatch_checks.check_dispatch(origin, row, preconditions, whole, context)

    def check_reuse(row: EffectRow) -> Refusal | None:
        return dispatch_checks.check_permission_reuse(origin, row, preconditions, whole)

    result = ledger_dispatch.dispatch_effect(
        origin,
        effect,
        process=process,
        asked=asked,
        check=check,
        again=check_reuse,
        observe=classify_observation,
        replays=replays,
    )
    if result.attempt is None or result.refusal is not None:
        return result
    if context.gate is not None:
        gates.use_gate(context.gate, result.attempt.number, origin.received_us)
    if context.fence is not None and result.created:
        heartbeats.record_progress(
            origin.project, result.effect.session_id, origin.lease_epoch, result.effect.task_id
        )
    if context.same_call:
        _link_same_calls(result, result.position)
    return result


def supersede_with_gates(origin: Origin, effect: UUID) -> CommandResult:
    """Withdraw an effect that has not happened, and its open gate with it."""
    open_gates: list[Gate] = []

    def check(row: EffectRow) -> Refusal | None:
        stale_lease = fencing.check_epoch(
            origin.project, row.session_id, origin.lease_epoch, row.task_id
        )
        if stale_lease is not None:
            fencing.record_fenced_command(
                origin, row.session_id, stale_lease, kind="effect.superseded", effect=row.id
            )
            return Refusal("LEASE_LOST", stale_lease.sentence)
        for gate in Gate.objects.select_for_update().filter(
            effect=row.id, status__in=OPEN_STATUSES
        ):
            deadlines.settle_gate(row, gate, origin.received_us)
            if gate.status in OPEN_STATUSES:
                open_gates.append(gate)
        return None

    result = commands.supersede_effect(origin, effect, classify_observation, check)
    if result.refusal is None:
        for gate in open_gates:
            gates.end_gate(
                result.effect, gate, "cancelled", "superseded", origin.received_us, origin.actor
            )
    return result


def acknowledge_with_gates(
    origin: Origin, effect: UUID, *, attempt: int, outcome: str, external_reference: str
) -> CommandResult:
    """Record the outcome of an attempt. Raises LookupError.

    A late outcome may end the gate that was opened for the next attempt. An outcome is recorded
    even while a stop is in force or permission is missing.
    """
    result = commands.acknowledge_attempt(
        origin,
        effect,
        attempt=attempt,
        outcome=outcome,
        external_reference=external_reference,
        observe=classify_observation,
    )
    if result.status == 202:
        end_gates_of_moved_effects([result.effect], origin.received_us)
    return result


def end_gates_of_moved_effects(rows: Iterable[EffectRow], received_us: int) -> None:
    """End the open gates of locked effects that were reported as done or withdrawn.

    Where a gate was cancelled because an earlier attempt turned out to have happened, and the
    attempt that the gate was for ran as well, the permission of that attempt is the gate's. The
    gate stays as it ended.
    """
    changed_rows = {
        row.id: row
        for row in rows
        if row.recalled
        or (
            row.permission_ref
            and (row.permission in MOVED_PERMISSIONS or row.state == "superseded")
        )
    }
    if not changed_rows:
        return
    condition = Q(status__in=OPEN_STATUSES)
    if any(row.recalled for row in changed_rows.values()):
        condition |= Q(status="cancelled", reason="happened")
    affected_gates = Gate.objects.select_for_update().filter(condition, effect__in=changed_rows)
    for gate in affected_gates.order_by("effect", "opened_position"):
        row = changed_rows[gate.effect_id]
        if gate.status == "cancelled":
            if row.recalled and row.permission_until_us in (
                gate.permission_until_us,
                gate.decide_by_us,
            ):
                basis = "ruling" if row.permission == "used" else row.permission_basis
                permissions.change_permission(
                    row,
                    Grant(row.permission, basis, gate.id.hex, row.permission_until_us),
                    received_us,
                )
            continue
        deadlines.settle_gate(row, gate, received_us)
        if gate.status not in OPEN_STATUSES:
            continue
        if row.spent_by:
            gates.use_gate(gate, row.spent_by, received_us)
        elif row.state == "superseded":
            gates.end_gate(row, gate, "cancelled", "superseded", received_us)
        elif row.permission == "bypassed":
            gates.end_gate(row, gate, "cancelled", "bypassed", received_us)
        else:
            gates.end_gate(row, gate, "cancelled", "happened", received_us)
            permissions.change_permission(row, _permission_of_attempt(row), received_us)


def _permission_of_attempt(row: EffectRow) -> Grant:
    """Return the permission of an earlier attempt that turned out to have happened."""
    permission_entries = Entry.objects.filter(
        effect=row.id, kind__in=("effect.planned", "effect.granted")
    ).order_by("-position")
    attempt = (
        Attempt.objects.filter(effect=row.id)
        .exclude(acknowledged_mark="")
        .order_by("-number")
        .first()
    )
    gate = (
        Gate.objects.filter(effect=row.id, used_attempt=attempt.number).first()
        if attempt is not None
        else None
    )
    if gate is not None:
        return Grant(row.permission, "ruling", gate.id.hex)
    decisions = (
        orjson.loads(facts) for facts in permission_entries.values_list("facts", flat=True)
    )
    return Grant(
        row.permission,
        next(
            (
                decision["basis"]
                for decision in decisions
                if decision.get("permission") == "granted"
            ),
            "observe",
        ),
    )


def _decide_permission(
    origin: Origin,
    plan: Plan,
    payload: PlanPayload,
    evaluation: PolicyEvaluation,
    requests: list[GateDraft],
    attempt_count: int,
) -> Grant:
    policy, policy_input, decision = evaluation
    if decision.outcome == "allow":
        return Grant("granted", "policy")
    if decision.outcome == "deny":
        return Grant("denied", "policy")
    identity = derive_uuid(plan.session, plan.effect_key)
    retried_effect = identity if attempt_count else None
    exemption = exemptions.find_exemption(
        origin.project,
        policy_input,
        decision.asking,
        plan.session,
        origin.agent,
        origin.received_us,
        retried_effect,
        decision.suspension,
    )
    if exemption is not None and exemptions.use_exemption(
        exemption, origin, identity, plan.session, attempt_count
    ):
        return Grant("granted", "exemption", exemption.id.hex, exemption.ends_at_us)
    requirement = decision.requirement or Requirement()
    on_behalf_of = inputs.load_on_behalf_of(plan.session)
    digest = compute_approval_digest(
        plan.session, origin.agent, plan.tool, plan.intent_digest, plan.values, on_behalf_of
    )
    request = GateDraft(
        new_uuid7(), origin, payload, policy.policy_set, decision.rule, requirement, digest
    )
    requests.append(request)
    return Grant(
        *PERMISSION_OF_STATUS["pending"],
        request.id.hex,
        origin.received_us + requirement.decide_within_s * US,
    )


SESSION_ENDED_REFUSAL: Final = Refusal(
    "SESSION_ENDED",
    "The session has ended. Open a new session to plan effects. You can still acknowledge or"
    " compensate earlier effects; if the session was leased, acquire a lease with `to_compensate`"
    " first.",
)


def _needs_permission(identity: UUID, origin: Origin) -> bool:
    """True if a plan would request permission and not only return the effect's state."""
    row = writer.load_effects([identity]).get(identity)
    return row is None or commands.is_permission_needed(row, origin.received_us)


def _refuse_plan(identity: UUID, origin: Origin, plan: Plan, refusal: Refusal) -> CommandResult:
    row = writer.load_effects([identity]).get(identity)
    if row is None:
        row = EffectRow(
            identity,
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
    return CommandResult(row, 409, refusal)
