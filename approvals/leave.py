"""Where leave is decided: `plan` is the way of every intention and `dispatch` of every start.

`observe` is for what merely was reported, and `follow` closes the gates of what happened without waiting. What people
answer comes through approvals/rulings.py.
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


def plan(origin: Origin, wish: Plan, asked: Asked) -> Answered:
    """Plan an effect and decide its leave, by the policy in force; where people must say yes, open a gate.

    Raises capacity.Paced and breakers.Paused, which leave nothing.
    """
    identity = derived(wish.session, wish.effect_key)
    agent, tool, now_us = origin.agent, wish.tool, origin.received_us
    task: UUID | None = wish.values.get("task_id")
    speakers.expect(origin, wish.session, "effect.planned", task=task, effect=identity)
    present = policies.grounds(
        origin.project,
        wish.session,
        agent=agent,
        tool=tool,
        now_us=now_us,
        task=task,
        intent=wish.intent_digest,
    )
    force, stops, final, ended, *_others = present
    stale = fences.compare(origin.lease_epoch, present.fence, needed=present.leased)
    if stale is not None:
        fences.refuse(origin, wish.session, stale, kind="effect.planned")
        sentence = f"{stale.sentence} {TAKE_IT}" if ended else stale.sentence
        return _refused(identity, origin, wish, Refusal("LEASE_LOST", sentence))
    if ended and wish.values.get("compensates_id") is None and _asks(identity, origin):
        return _refused(identity, origin, wish, SESSION_ENDED)
    if (
        stops
        and holds.stopping(origin.project, wish.session, origin.agent, wish.tool, identity)
        is not None
    ):
        return _refused(identity, origin, wish, HELD)
    if (present.paced or present.broken) and _asks(identity, origin):
        _pace(origin, wish, identity)
    opening: list[Request] = []
    judged = _judge(force, origin, wish, asked) if force is not None else None
    if judged is not None:
        wish.values |= judged.columns

    def decide(row: EffectRow | None) -> Grant:
        now_judged = judged
        if row is not None:
            deadlines.end_lapsed(row, origin.received_us)
        if row is not None and is_of_a_command(row.planned_mark):
            # Asked again: the plan that was accepted stands, whatever target the repetition names. Leave is decided
            # for whoever asks now, by the rules and patterns of refs that hold now, and the effect says so.
            asked.repository = reading.stamp(row)
            wish.values, row.agent_id = reading.target_of(row), origin.agent
            if force is not None:
                now_judged = _judge(force, origin, wish, asked)
                for name, value in now_judged.columns.items():
                    setattr(row, name, value)
        denied = denied_for_good(origin.agent, wish) if final else None
        if denied is not None:
            return Grant("refused", "ruling", denied.hex)
        if now_judged is None or now_judged.force.mode == "observe":
            return Grant("granted", "observe")
        return _leave(
            origin, wish, asked, now_judged, opening, row.attempt_count if row is not None else 0
        )

    answered = commands.plan(origin, wish, decide, observe)
    if present.broken and answered.position and answered.effect.leave in ("granted", "pending"):
        breakers.admit(answered.effect, now_us)
    for request in opening:
        gates.open_for(request, answered.effect, answered.position)
    if answered.effect.leave == "pending" and leaves.lapsed(answered.effect, origin.received_us):
        deadlines.settle_of(answered.effect, origin.received_us)
    if present.fence is not None and answered.created:
        beats.progressed(origin.project, wish.session, origin.lease_epoch, task)
    if present.same_call and answered.position:
        _name_each_other(answered, answered.position)
    return answered


def _name_each_other(answered: Answered, position: int) -> None:
    """Let an effect and those of other sessions that may have done the same already name each other, where it matters.

    What is settled meanwhile stays named; what the agent is told of is what nobody knows of now.
    """
    row = answered.effect
    found = same_calls.unknown(row.project_id, row.session_id, row.tool, row.intent_digest)
    if found:
        same_calls.link(row.id, row.project_id, row.session_id, found, position)
        answered.same_calls = tuple(found)


def _pace(origin: Origin, wish: Plan, identity: UUID) -> None:
    """Hold back an intention whose agent says that it can take little, or whose tool fails: Paced, Paused."""
    paced = capacity.paced(origin.agent, wish.session, origin.received_us)
    if paced is not None:
        raise paced
    breakers.look(origin.project, wish.tool, identity, origin.received_us)


def _judge(force: InForce, origin: Origin, wish: Plan, asked: Asked) -> Judged:
    counting.alone(origin.project, force.compiled, [wish.tool])
    seen = reading.wish_of(
        origin.project, wish.session, origin.source, wish.tool, wish.values, asked
    )
    return Judged(
        force, seen, judge(force.compiled, seen, force.mode, reading.counter(origin, wish))
    )


def observe(leave: str, imports: bool, judged: str) -> Observation:
    """What is to be thought of an effect that happened without a command.

    `leave` is the present one (held, pending or refused), `judged` what an enforced policy said of its plan (of several
    reported ones the strictest), or nothing. Where people had not ruled, or had refused, or the policy would not have
    let it go, it ran without approval.
    """
    if leave in ("pending", "refused"):
        return Observation("bypassed", "ruling")
    if imports:
        return Observation("observed", "import")
    if judged in ("ask", "deny"):
        return Observation("bypassed", "policy")
    return Observation("observed", "policy" if judged else "observe")


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
    """Use the leave and open the next attempt, in one transaction; a gate is used in the same.

    `whole` are the arguments about to be used, where they were sent; `replays` is the attempt in doubt that the next
    one replaces. Raises LookupError when the project has no such effect.
    """
    holds.share(origin.project)
    found = Found()

    def check(row: EffectRow) -> Refusal | None:
        return last_look.check(origin, row, preconditions, whole, found)

    def again(row: EffectRow) -> Refusal | None:
        return last_look.once_more(origin, row, preconditions, whole)

    answered = dispatches.dispatch(
        origin,
        effect,
        process=process,
        asked=asked,
        check=check,
        again=again,
        observe=observe,
        replays=replays,
    )
    if answered.attempt is None or answered.refusal is not None:
        return answered
    if found.gate is not None:
        gates.use(found.gate, answered.attempt.number, origin.received_us)
    if found.fence is not None and answered.created:
        beats.progressed(
            origin.project, answered.effect.session_id, origin.lease_epoch, answered.effect.task_id
        )
    if found.same_call:
        _name_each_other(answered, answered.position)
    return answered


def supersede(origin: Origin, effect: UUID) -> Answered:
    """Withdraw an effect that has not happened, and its open gate with it."""
    asking: list[Gate] = []

    def check(row: EffectRow) -> Refusal | None:
        stale = fences.check(origin.project, row.session_id, origin.lease_epoch, row.task_id)
        if stale is not None:
            fences.refuse(origin, row.session_id, stale, kind="effect.superseded", effect=row.id)
            return Refusal("LEASE_LOST", stale.sentence)
        for gate in Gate.objects.select_for_update().filter(effect=row.id, status__in=OPEN):
            deadlines.settle(row, gate, origin.received_us)
            if gate.status in OPEN:
                asking.append(gate)
        return None

    answered = commands.supersede(origin, effect, observe, check)
    if answered.refusal is None:
        for gate in asking:
            gates.end(
                answered.effect, gate, "cancelled", "superseded", origin.received_us, origin.actor
            )
    return answered


def acknowledge(
    origin: Origin, effect: UUID, *, attempt: int, outcome: str, external_reference: str
) -> Answered:
    """Record the outcome of an attempt; a late one may end the gate that was opened for the next. Raises LookupError.

    Never held, and never refused for want of leave.
    """
    answered = commands.acknowledge(
        origin,
        effect,
        attempt=attempt,
        outcome=outcome,
        external_reference=external_reference,
        observe=observe,
    )
    if answered.status == 202:
        follow([answered.effect], origin.received_us)
    return answered


def follow(rows: Iterable[EffectRow], received_us: int) -> None:
    """End the open gates of effects (locked) that went on without them: reported as done, or withdrawn.

    Where a gate was ended because an attempt before turned out to have happened, and the attempt that it was for ran as
    well, that one is judged by what people had said: the gate stays as it ended, and the book says whose yes it was.
    """
    moved = {
        row.id: row
        for row in rows
        if row.recalled or (row.leave_ref and (row.leave in MOVED or row.state == "superseded"))
    }
    if not moved:
        return
    wanted = Q(status__in=OPEN)
    if any(row.recalled for row in moved.values()):
        wanted |= Q(status="cancelled", reason="happened")
    found = Gate.objects.select_for_update().filter(wanted, effect__in=moved)
    for gate in found.order_by("effect", "opened_position"):
        row = moved[gate.effect_id]
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
            leaves.change_leave(row, _leave_of_attempt(row), received_us)


def _leave_of_attempt(row: EffectRow) -> Grant:
    """The leave under which an earlier attempt turned out to have happened, as the book tells it."""
    told = Entry.objects.filter(
        effect=row.id, kind__in=("effect.planned", "effect.granted")
    ).order_by("-position")
    done = (
        Attempt.objects.filter(effect=row.id)
        .exclude(acknowledged_mark="")
        .order_by("-number")
        .first()
    )
    gate = (
        Gate.objects.filter(effect=row.id, used_attempt=done.number).first()
        if done is not None
        else None
    )
    if gate is not None:
        return Grant(row.leave, "ruling", gate.id.hex)
    given = (orjson.loads(facts) for facts in told.values_list("facts", flat=True))
    return Grant(
        row.leave, next((one["basis"] for one in given if one.get("leave") == "granted"), "observe")
    )


def _leave(
    origin: Origin, wish: Plan, asked: Asked, judged: Judged, opening: list[Request], attempts: int
) -> Grant:
    force, seen, judgement = judged
    if judgement.outcome == "allow":
        return Grant("granted", "policy")
    if judgement.outcome == "deny":
        return Grant("refused", "policy")
    identity = derived(wish.session, wish.effect_key)
    again = identity if attempts else None
    covering = exemptions.covering(
        origin.project,
        seen,
        judgement.asking,
        wish.session,
        origin.agent,
        origin.received_us,
        again,
        judgement.suspension,
    )
    if covering is not None and exemptions.use(covering, origin, identity, wish.session, attempts):
        return Grant("granted", "exemption", covering.id.hex, covering.ends_at_us)
    requirement = judgement.requirement or Requirement()
    on_behalf_of = reading.on_behalf_of(wish.session)
    digest = binding(
        wish.session, origin.agent, wish.tool, wish.intent_digest, wish.values, on_behalf_of
    )
    request = Request(uuid7(), origin, asked, force.policy_set, judgement.rule, requirement, digest)
    opening.append(request)
    return Grant(
        *LEAVE_OF["pending"], request.id.hex, origin.received_us + requirement.decide_within_s * US
    )


SESSION_ENDED: Final = Refusal(
    "SESSION_ENDED",
    "This session has ended, and takes no new intentions; open one under another key and plan there. What was done here"
    " can still be answered and compensated: where it was worked on under a lease, under one taken with to_compensate.",
)


def _asks(identity: UUID, origin: Origin) -> bool:
    """Whether a plan would ask for leave, and not only how an effect that is there stands."""
    row = effects.load([identity]).get(identity)
    return row is None or commands.needs_leave(row, origin.received_us)


def _refused(identity: UUID, origin: Origin, wish: Plan, refusal: Refusal) -> Answered:
    row = effects.load([identity]).get(identity)
    if row is None:
        row = EffectRow(
            identity, origin.project, wish.session, origin.agent, wish.effect_key, 0, origin.received_us,
            origin.received_us, tool=wish.tool, intent_digest=wish.intent_digest,
        )  # fmt: skip
    return Answered(row, 409, refusal)
