"""Service functions that grant or deny permission to plan and dispatch effects.

`plan`, `dispatch`, `supersede` and `acknowledge` are the commands; `observe` classifies effects
that were only reported; `follow` closes the gates of effects that happened without waiting. Votes
of people are written by approvals/rulings.py.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Q

from approvals import counting, deadlines, exemptions, gates, last_look, policies, reading
from approvals.binding import binding
from approvals.gates import Request
from approvals.last_look import HELD, TAKE_IT, Found, Judged, Whole, denied_for_good
from approvals.matching import Requirement, judge
from approvals.models import Gate
from approvals.policies import InForce
from approvals.reading import Asked
from approvals.states import LEAVE_OF, OPEN, US
from journal.ids import derived, uuid7
from journal.models import Entry
from journal.order import is_of_a_command
from ledger import breakers, commands, dispatches, effects, holds, leaves, same_calls
from ledger.commands import Answered, Plan
from ledger.fold import Observation
from ledger.leaves import Grant, Refusal
from ledger.models import Attempt
from ledger.rows import EffectRow
from ledger.states import MOVED
from sessions import beats, capacity, fences, speakers
from sessions.origin import Origin


def plan(origin: Origin, plan: Plan, payload: Asked) -> Answered:
    """Plan an effect and decide its permission; open a gate where people must approve.

    Raises capacity.Paced and breakers.Paused; nothing is stored then.
    """
    identity = derived(plan.session, plan.effect_key)
    agent, tool, now_us = origin.agent, plan.tool, origin.received_us
    task: UUID | None = plan.values.get("task_id")
    speakers.expect(origin, plan.session, "effect.planned", task=task, effect=identity)
    context = policies.grounds(
        origin.project,
        plan.session,
        agent=agent,
        tool=tool,
        now_us=now_us,
        task=task,
        intent=plan.intent_digest,
    )
    policy, stops, has_session_denial, session_ended, *_rest = context
    stale_lease = fences.compare(origin.lease_epoch, context.fence, needed=context.leased)
    if stale_lease is not None:
        fences.refuse(origin, plan.session, stale_lease, kind="effect.planned")
        sentence = f"{stale_lease.sentence} {TAKE_IT}" if session_ended else stale_lease.sentence
        return _refuse_plan(identity, origin, plan, Refusal("LEASE_LOST", sentence))
    if (
        session_ended
        and plan.values.get("compensates_id") is None
        and _needs_permission(identity, origin)
    ):
        return _refuse_plan(identity, origin, plan, SESSION_ENDED)
    if stops and holds.stopping(origin.project, plan.session, agent, tool, identity) is not None:
        return _refuse_plan(identity, origin, plan, HELD)
    if (context.paced or context.broken) and _needs_permission(identity, origin):
        _check_pace(origin, plan, identity)
    requests: list[Request] = []
    evaluation = _evaluate_policy(policy, origin, plan, payload) if policy is not None else None
    if evaluation is not None:
        plan.values |= evaluation.columns

    def decide(row: EffectRow | None) -> Grant:
        current_evaluation = evaluation
        if row is not None:
            deadlines.end_lapsed(row, origin.received_us)
        if row is not None and is_of_a_command(row.planned_mark):
            # A repeated plan keeps the accepted target, whatever target the repetition names.
            # Permission is decided for the agent that plans now, by the current rules and ref
            # patterns, and these are stored with the effect.
            payload.repository = reading.stamp(row)
            plan.values, row.agent_id = reading.target_of(row), origin.agent
            if policy is not None:
                current_evaluation = _evaluate_policy(policy, origin, plan, payload)
                for name, value in current_evaluation.columns.items():
                    setattr(row, name, value)
        denied_gate = denied_for_good(origin.agent, plan) if has_session_denial else None
        if denied_gate is not None:
            return Grant("refused", "ruling", denied_gate.hex)
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

    result = commands.plan(origin, plan, decide, observe)
    if context.broken and result.position and result.effect.leave in ("granted", "pending"):
        breakers.admit(result.effect, now_us)
    for request in requests:
        gates.open_for(request, result.effect, result.position)
    if result.effect.leave == "pending" and leaves.lapsed(result.effect, origin.received_us):
        deadlines.settle_of(result.effect, origin.received_us)
    if context.fence is not None and result.created:
        beats.progressed(origin.project, plan.session, origin.lease_epoch, task)
    if context.same_call and result.position:
        _link_same_calls(result, result.position)
    return result


def _link_same_calls(result: Answered, position: int) -> None:
    """Link an effect to calls of other sessions that may already have done the same.

    Links stay after an outcome becomes known; the agent's answer lists only calls whose outcome is
    unknown now.
    """
    row = result.effect
    same_call_effects = same_calls.unknown(
        row.project_id, row.session_id, row.tool, row.intent_digest
    )
    if same_call_effects:
        same_calls.link(row.id, row.project_id, row.session_id, same_call_effects, position)
        result.same_calls = tuple(same_call_effects)


def _check_pace(origin: Origin, plan: Plan, identity: UUID) -> None:
    """Raise Paced if the agent reported low capacity, Paused if the tool is failing."""
    paced = capacity.paced(origin.agent, plan.session, origin.received_us)
    if paced is not None:
        raise paced
    breakers.look(origin.project, plan.tool, identity, origin.received_us)


def _evaluate_policy(policy: InForce, origin: Origin, plan: Plan, payload: Asked) -> Judged:
    counting.alone(origin.project, policy.compiled, [plan.tool])
    policy_input = reading.wish_of(
        origin.project, plan.session, origin.source, plan.tool, plan.values, payload
    )
    return Judged(
        policy,
        policy_input,
        judge(policy.compiled, policy_input, policy.mode, reading.counter(origin, plan)),
    )


def observe(permission: str, is_import: bool, policy_outcome: str) -> Observation:
    """Classify an effect that happened without a command.

    `permission` is the present value (none, pending or denied). `policy_outcome` is the result of
    an enforced policy on the plan (the strictest of several reported plans), or empty. The effect
    was bypassed where people had not approved or had denied it, or where the policy would not have
    allowed it.
    """
    if permission in ("pending", "refused"):
        return Observation("bypassed", "ruling")
    if is_import:
        return Observation("observed", "import")
    if policy_outcome in ("ask", "deny"):
        return Observation("bypassed", "policy")
    return Observation("observed", "policy" if policy_outcome else "observe")


def dispatch(
    origin: Origin,
    effect: UUID,
    *,
    process: str,
    asked: Callable[[str], str],
    preconditions: Mapping[str, Any] | None,
    whole: Whole | None = None,
    replays: int | None = None,
) -> Answered:
    """Use the permission and its gate, and open the next attempt, in one transaction.

    `whole` holds the arguments about to be used, if they were sent; `replays` is the attempt of
    unknown outcome that the next one replaces. Raises LookupError when the project has no such
    effect.
    """
    holds.share(origin.project)
    context = Found()

    def check(row: EffectRow) -> Refusal | None:
        return last_look.check(origin, row, preconditions, whole, context)

    def check_reuse(row: EffectRow) -> Refusal | None:
        return last_look.once_more(origin, row, preconditions, whole)

    result = dispatches.dispatch(
        origin,
        effect,
        process=process,
        asked=asked,
        check=check,
        again=check_reuse,
        observe=observe,
        replays=replays,
    )
    if result.attempt is None or result.refusal is not None:
        return result
    if context.gate is not None:
        gates.use(context.gate, result.attempt.number, origin.received_us)
    if context.fence is not None and result.created:
        beats.progressed(
            origin.project, result.effect.session_id, origin.lease_epoch, result.effect.task_id
        )
    if context.same_call:
        _link_same_calls(result, result.position)
    return result


def supersede(origin: Origin, effect: UUID) -> Answered:
    """Withdraw an effect that has not happened, and its open gate with it."""
    open_gates: list[Gate] = []

    def check(row: EffectRow) -> Refusal | None:
        stale_lease = fences.check(origin.project, row.session_id, origin.lease_epoch, row.task_id)
        if stale_lease is not None:
            fences.refuse(
                origin, row.session_id, stale_lease, kind="effect.superseded", effect=row.id
            )
            return Refusal("LEASE_LOST", stale_lease.sentence)
        for gate in Gate.objects.select_for_update().filter(effect=row.id, status__in=OPEN):
            deadlines.settle(row, gate, origin.received_us)
            if gate.status in OPEN:
                open_gates.append(gate)
        return None

    result = commands.supersede(origin, effect, observe, check)
    if result.refusal is None:
        for gate in open_gates:
            gates.end(
                result.effect, gate, "cancelled", "superseded", origin.received_us, origin.actor
            )
    return result


def acknowledge(
    origin: Origin, effect: UUID, *, attempt: int, outcome: str, external_reference: str
) -> Answered:
    """Record the outcome of an attempt. Raises LookupError.

    A late outcome may end the gate that was opened for the next attempt. An outcome is recorded
    even while a stop is in force or permission is missing.
    """
    result = commands.acknowledge(
        origin,
        effect,
        attempt=attempt,
        outcome=outcome,
        external_reference=external_reference,
        observe=observe,
    )
    if result.status == 202:
        follow([result.effect], origin.received_us)
    return result


def follow(rows: Iterable[EffectRow], received_us: int) -> None:
    """End the open gates of locked effects that were reported as done or withdrawn.

    Where a gate was cancelled because an earlier attempt turned out to have happened, and the
    attempt that the gate was for ran as well, the permission of that attempt is the gate's. The
    gate stays as it ended.
    """
    changed_rows = {
        row.id: row
        for row in rows
        if row.recalled or (row.leave_ref and (row.leave in MOVED or row.state == "superseded"))
    }
    if not changed_rows:
        return
    condition = Q(status__in=OPEN)
    if any(row.recalled for row in changed_rows.values()):
        condition |= Q(status="cancelled", reason="happened")
    affected_gates = Gate.objects.select_for_update().filter(condition, effect__in=changed_rows)
    for gate in affected_gates.order_by("effect", "opened_position"):
        row = changed_rows[gate.effect_id]
        if gate.status == "cancelled":
            if row.recalled and row.leave_until_us in (gate.leave_until_us, gate.decide_by_us):
                basis = "ruling" if row.leave == "used" else row.leave_basis
                leaves.change_leave(
                    row, Grant(row.leave, basis, gate.id.hex, row.leave_until_us), received_us
                )
            continue
        deadlines.settle(row, gate, received_us)
        if gate.status not in OPEN:
            continue
        if row.spent_by:
            gates.use(gate, row.spent_by, received_us)
        elif row.state == "superseded":
            gates.end(row, gate, "cancelled", "superseded", received_us)
        elif row.leave == "bypassed":
            gates.end(row, gate, "cancelled", "bypassed", received_us)
        else:
            gates.end(row, gate, "cancelled", "happened", received_us)
            leaves.change_leave(row, _permission_of_attempt(row), received_us)


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
        return Grant(row.leave, "ruling", gate.id.hex)
    decisions = (
        orjson.loads(facts) for facts in permission_entries.values_list("facts", flat=True)
    )
    return Grant(
        row.leave,
        next(
            (decision["basis"] for decision in decisions if decision.get("leave") == "granted"),
            "observe",
        ),
    )


def _decide_permission(
    origin: Origin,
    plan: Plan,
    payload: Asked,
    evaluation: Judged,
    requests: list[Request],
    attempt_count: int,
) -> Grant:
    policy, policy_input, decision = evaluation
    if decision.outcome == "allow":
        return Grant("granted", "policy")
    if decision.outcome == "deny":
        return Grant("refused", "policy")
    identity = derived(plan.session, plan.effect_key)
    retried_effect = identity if attempt_count else None
    exemption = exemptions.covering(
        origin.project,
        policy_input,
        decision.asking,
        plan.session,
        origin.agent,
        origin.received_us,
        retried_effect,
        decision.suspension,
    )
    if exemption is not None and exemptions.use(
        exemption, origin, identity, plan.session, attempt_count
    ):
        return Grant("granted", "exemption", exemption.id.hex, exemption.ends_at_us)
    requirement = decision.requirement or Requirement()
    on_behalf_of = reading.on_behalf_of(plan.session)
    digest = binding(
        plan.session, origin.agent, plan.tool, plan.intent_digest, plan.values, on_behalf_of
    )
    request = Request(
        uuid7(), origin, payload, policy.policy_set, decision.rule, requirement, digest
    )
    requests.append(request)
    return Grant(
        *LEAVE_OF["pending"], request.id.hex, origin.received_us + requirement.decide_within_s * US
    )


SESSION_ENDED: Final = Refusal(
    "SESSION_ENDED",
    "The session has ended. Open a new session to plan effects. You can still acknowledge or"
    " compensate earlier effects; if the session was leased, acquire a lease with `to_compensate`"
    " first.",
)


def _needs_permission(identity: UUID, origin: Origin) -> bool:
    """True if a plan would request permission and not only return the effect's state."""
    row = effects.load([identity]).get(identity)
    return row is None or commands.needs_leave(row, origin.received_us)


def _refuse_plan(identity: UUID, origin: Origin, plan: Plan, refusal: Refusal) -> Answered:
    row = effects.load([identity]).get(identity)
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
    return Answered(row, 409, refusal)
