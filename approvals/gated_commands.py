"""Service functions that grant or deny permission to plan and dispatch effects.

`plan_with_policy`, `dispatch_with_policy`, `supersede_with_gates` and `acknowledge_with_gates` are
the commands. They load, decide (plan_decision.py, dispatch_decision.py) and write.
`classify_observation` classifies effects that were only reported; `end_gates_of_moved_effects`
closes the gates of effects that happened without waiting. Votes of people are written by
approvals/voting/votes.py.
"""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

import orjson
from django.db.models import Q

from accounts.origin import Origin
from approvals import exemptions
from approvals.dispatch_context import (
    DispatchContext,
    DispatchRequest,
    PermissionUse,
    load_attempt_context,
    load_dispatch_context,
    load_permission_use,
)
from approvals.dispatch_decision import (
    WITHDRAWN,
    AttemptDecision,
    PermissionDecision,
    decide_attempt,
    decide_permission_use,
    find_dispatch_refusal,
)
from approvals.gates import deadlines, gates
from approvals.gates.gates import GateDraft
from approvals.gates.statuses import OPEN_STATUSES
from approvals.models import Gate
from approvals.plan_context import (
    PermissionContext,
    PlanContext,
    load_permission_context,
    load_plan_context,
)
from approvals.plan_decision import PlanDecision, decide_plan, find_plan_refusal
from approvals.policies.policy_inputs import PlanPayload
from approvals.voting import quorum
from journal.models import Entry
from ledger import circuit_breakers, commands, permissions, refusals, same_calls
from ledger import dispatch as ledger_dispatch
from ledger import stops as ledger_stops
from ledger.circuit_breakers import CircuitOpen
from ledger.commands import CommandResult, Plan, PlannedEffect
from ledger.fold.apply import Observation
from ledger.models import Attempt
from ledger.permissions import Grant
from ledger.refusals import Refusal
from ledger.states import MOVED_PERMISSIONS
from ledger.store.effect_rows import EffectRow
from ledger.store.reader import load_attempts
from ledger.verdicts import evaluate
from sessions import fencing, heartbeats, writers
from sessions.capacity import PlansThrottled


def plan_with_policy(origin: Origin, plan: Plan, payload: PlanPayload) -> CommandResult:
    """Plan an effect and decide its permission; open a gate where people must approve.

    Raises PlansThrottled and CircuitOpen; nothing is stored then.
    """
    context = load_plan_context(origin, plan)
    refusal = find_plan_refusal(plan, context)
    if refusal is not None:
        return _write_plan_refusal(origin, plan, context, refusal)
    permission_context = load_permission_context(origin, plan, payload, context)
    decision = decide_plan(permission_context)
    return _write_plan(origin, plan, context, permission_context, decision)


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
        fencing.record_fenced_command(
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


def _write_plan(
    origin: Origin,
    plan: Plan,
    context: PlanContext,
    permission_context: PermissionContext,
    decision: PlanDecision,
) -> CommandResult:
    """Write the plan, its permission and the gate, and what else follows from the plan."""
    write = _write_repeated_plan if context.effect.is_repeated else _write_first_plan
    result, gate = write(origin, plan, context.effect, permission_context, decision)
    row, command = result.effect, context.command
    if command.circuit_open and result.position and row.permission in ("granted", "pending"):
        circuit_breakers.admit_trial(row, origin.received_us)
    if gate is not None:
        gates.open_gate(gate, origin, permission_context.payload, row, result.position)
    if row.permission == "pending" and permissions.is_permission_expired(row, origin.received_us):
        deadlines.settle_gate_of_effect(row, origin.received_us)
    if command.fence is not None and result.created:
        heartbeats.record_progress(
            origin.project, plan.session, origin.lease_epoch, plan.values.get("task_id")
        )
    if command.same_call and result.position:
        _link_same_calls(result, result.position)
    return result


def _write_first_plan(
    origin: Origin,
    plan: Plan,
    effect: PlannedEffect,
    context: PermissionContext,
    decision: PlanDecision,
) -> tuple[CommandResult, GateDraft | None]:
    """Write the first accepted plan of an effect; return the gate to open.

    An effect that was reported before gets the permission only after its state is known.
    """
    row, now_us = effect.row, origin.received_us
    if decision.grant is not None and (row is None or row.permission == "none"):
        decision = _claim_exemption(origin, plan.session, effect, context, decision)
        result = commands.record_first_plan(
            origin, plan, effect, decision.columns, decision.grant, classify_observation
        )
        return result, decision.gate
    result = commands.record_first_plan(
        origin, plan, effect, decision.columns, None, classify_observation
    )
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
    if evaluate.is_in_doubt(row):
        attempts = load_attempts([row.id])[row.id]
        commands.give_up_attempt(row, attempts, now_us, classify_observation)
        # An attempt before the last happened, so no permission is needed.
        if row.state == "acknowledged":
            return result, None
    deadlines.settle_last_gate(row, now_us)
    decision = _claim_exemption(origin, plan.session, effect, context, decision)
    commands.replan_effect(row, position, decision.columns)
    return result, _change_permission(row, decision, now_us)


def _change_permission(row: EffectRow, decision: PlanDecision, now_us: int) -> GateDraft | None:
    if decision.grant is not None:
        permissions.change_permission(row, decision.grant, now_us)
    return decision.gate


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


def dispatch_with_policy(origin: Origin, request: DispatchRequest) -> CommandResult:
    """Use the permission and its gate, and open the next attempt, in one transaction.

    Raises LookupError when the project has no such effect.
    """
    ledger_stops.lock_shared(origin.project)
    context = load_dispatch_context(origin, request)
    row = context.row
    refusal = find_dispatch_refusal(context)
    if refusal is not None:
        return _write_dispatch_refusal(origin, context, refusal)
    gate = deadlines.settle_permission(row, origin.received_us)
    if row.permission == "granted":
        use = load_permission_use(origin, request, context, gate)
        permission_decision = decide_permission_use(request, context, use)
        refusal = _write_permission_use(origin, request, context, use, permission_decision)
        if refusal is not None:
            return CommandResult(row, 409, refusal)
    attempt_context = load_attempt_context(origin, request, context)
    decision = decide_attempt(request, context, attempt_context)
    return _write_attempt(origin, request, context, gate, decision)


def _write_dispatch_refusal(
    origin: Origin, context: DispatchContext, refusal: Refusal
) -> CommandResult:
    """Record a refused dispatch where its refusal leaves a trace."""
    row = context.row
    if refusal is refusals.INTENT_CHANGED:
        commands.record_refusal(origin, row, refusal.code)
    elif context.stale_lease is not None:
        fencing.record_fenced_command(
            origin, row.session_id, context.stale_lease, kind="effect.dispatched", effect=row.id
        )
    return CommandResult(row, 409, refusal)


def _write_permission_use(
    origin: Origin,
    request: DispatchRequest,
    context: DispatchContext,
    use: PermissionUse,
    decision: PermissionDecision,
) -> Refusal | None:
    """Write what becomes of a permission before its use; return why it cannot be used."""
    row, now_us = context.row, origin.received_us
    if decision.exemption is not None and not exemptions.use_exemption(
        decision.exemption, origin, row.id, row.session_id, row.attempt_count
    ):  # it has ended since it was loaded
        decision = decide_permission_use(request, context, replace(use, exemption=None))
    refusal = decision.refusal
    if decision.revokes_gate and use.gate is not None and refusal is not None:
        facts = (
            quorum.build_uncounted_facts(use.approvals) if refusal is refusals.QUORUM_LOST else {}
        )
        gates.end_gate(row, use.gate, "revoked", refusal.reason, now_us, more_facts=facts)
    if decision.grant is not None:
        permissions.change_permission(row, decision.grant, now_us)
    return refusal


def _write_attempt(
    origin: Origin,
    request: DispatchRequest,
    context: DispatchContext,
    gate: Gate | None,
    decision: AttemptDecision,
) -> CommandResult:
    """Open the next attempt, or repeat the answer about the present one."""
    row, attempts, command = context.row, context.attempts, context.command
    if decision.refusal is not None:
        if decision.withdraws:
            commands.give_up_attempt(row, attempts, origin.received_us, classify_observation)
            permissions.change_permission(row, WITHDRAWN, origin.received_us)
        return CommandResult(row, 409, decision.refusal)
    result = (
        ledger_dispatch.repeat_dispatch(origin, row, attempts[row.attempt_count])
        if decision.is_repeated
        else ledger_dispatch.record_dispatch(
            origin, row, attempts, request.process, decision.attempt, classify_observation
        )
    )
    if result.attempt is None:
        return result
    if gate is not None:
        gates.use_gate(gate, result.attempt.number, origin.received_us)
    if command.fence is not None and result.created:
        heartbeats.record_progress(origin.project, row.session_id, origin.lease_epoch, row.task_id)
    if command.same_call:
        _link_same_calls(result, result.position)
    return result


def supersede_with_gates(origin: Origin, effect: UUID) -> CommandResult:
    """Withdraw an effect that has not happened, and its open gate. Raises LookupError."""
    row, attempts = commands.lock_effect(origin, effect)
    writers.require_writer(
        origin,
        row.session_id,
        "effect.superseded",
        task=row.task_id,
        effect=row.id,
        also=commands.planning_agent(row),
    )
    refusal = commands.find_supersede_refusal(row, origin.received_us)
    if refusal is not None:
        return CommandResult(row, 409, refusal)
    stale_lease = fencing.check_epoch(
        origin.project, row.session_id, origin.lease_epoch, row.task_id
    )
    if stale_lease is not None:
        fencing.record_fenced_command(
            origin, row.session_id, stale_lease, kind="effect.superseded", effect=row.id
        )
        return CommandResult(row, 409, Refusal("LEASE_LOST", stale_lease.sentence))
    open_gates = list(
        Gate.objects.select_for_update().filter(effect=row.id, status__in=OPEN_STATUSES)
    )
    for gate in open_gates:
        deadlines.settle_gate(row, gate, origin.received_us)
    result = commands.record_superseded(origin, row, attempts, classify_observation)
    for gate in open_gates:
        if gate.status in OPEN_STATUSES:
            gates.end_gate(row, gate, "cancelled", "superseded", origin.received_us, origin.actor)
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
