"""Where leave is decided: `plan` is the way of every intention and `dispatch` of every start.

`observe` is for what merely was reported, and `follow` closes the gates of what happened without waiting. What people
answer comes through approvals/rulings.py.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from approvals import exemptions, gates, policies, reading
from approvals.binding import binding, preconditions_digest
from approvals.gates import Request
from approvals.matching import Judgement, Requirement, Wish, is_stricter, judge
from approvals.models import Gate
from approvals.policies import InForce
from approvals.reading import Asked
from approvals.states import LEAVE_OF, OPEN, US
from journal.ids import derived, uuid7
from ledger import commands, effects, holds
from ledger.commands import Answered, Grant, Plan, Refusal
from ledger.fold import Observation
from ledger.rows import EffectRow
from sessions.origin import Origin


def plan(origin: Origin, wish: Plan, asked: Asked) -> Answered:
    """Plan an effect and decide its leave, by the policy in force; where people must say yes, open a gate."""
    identity = derived(wish.session, wish.effect_key)
    force, stops = policies.standing(origin.project)
    if stops and holds.stopping(origin.project, wish.session, origin.agent, wish.tool, identity) is not None:
        return _held(identity, origin, wish)
    opening: list[Request] = []
    if force is not None:
        wish.values |= judgement_columns(force, _judge(force, origin, wish, asked)[1])

    def decide(row: EffectRow | None) -> Grant:
        if row is not None:
            gates.end_lapsed(row, origin.received_us)
        if force is None or force.mode == "observe":
            return Grant("granted", "observe")
        if row is not None and row.planned_mark:
            # Asked again: the plan that was accepted stands, whatever target the repetition names.
            wish.values = reading.target_of(row)
            asked.repository = reading.repository_name(row.repository_id)
        return _leave(origin, wish, asked, force, opening)

    answered = commands.plan(origin, wish, decide, observe)
    for request in opening:
        gates.open_for(request, answered.effect, answered.position)
    if answered.effect.leave == "pending" and commands.lapsed(answered.effect, origin.received_us):
        gates.settle_of(answered.effect, origin.received_us)
    return answered


def _judge(force: InForce, origin: Origin, wish: Plan, asked: Asked) -> tuple[Wish, Judgement]:
    seen = reading.wish_of(origin.project, wish.session, origin.source, wish.tool, wish.values, asked)
    return seen, judge(force.compiled, seen, force.mode, reading.counter(origin, wish))


def judgement_columns(force: InForce, judgement: Judgement) -> dict[str, Any]:
    """What an effect keeps of what the policy said of its plan."""
    return {
        "judged": judgement.outcome,
        "judged_by": f"{force.name}/{judgement.rule}",
        "enforced": force.mode == "enforce",
    }


def judge_reported(
    force: InForce, origin: Origin, session: UUID, tool: str, values: Mapping[str, Any], asked: Asked
) -> dict[str, Any]:
    """The columns that a reported plan gets: the policy is asked, and nobody waits for the answer."""
    return judgement_columns(force, _judge(force, origin, Plan(session, "", tool, "", dict(values)), asked)[1])


def observe(leave: str, imports: bool, judged: str) -> Observation:
    """What is to be thought of an effect that happened without a command.

    `leave` is the present one (held, pending or refused), `judged` what an enforced policy said of its plan, or
    nothing. Where people had not ruled, or had refused, or the policy would not have let it go, it ran without
    approval.
    """
    if leave in ("pending", "refused"):
        return Observation("bypassed", "ruling", True)
    if imports:
        return Observation("observed", "import", False)
    if judged in ("ask", "deny"):
        return Observation("bypassed", "policy", True)
    return Observation("observed", "policy" if judged else "observe", False)


def dispatch(
    origin: Origin,
    effect: UUID,
    *,
    process: str,
    asked: Callable[[str], str],
    preconditions: Mapping[str, Any] | None,
) -> Answered:
    """Use the leave and open the next attempt, in one transaction; a gate is used in the same.

    Raises LookupError when the project has no such effect.
    """
    holds.share(origin.project)
    found: list[Gate] = []

    def check(row: EffectRow) -> Refusal | None:
        return _check(origin, row, preconditions, found)

    answered = commands.dispatch(origin, effect, process=process, asked=asked, check=check, observe=observe)
    if found and answered.attempt is not None and answered.refusal is None:
        gates.use(found[0], answered.attempt.number, origin.received_us)
    return answered


def supersede(origin: Origin, effect: UUID) -> Answered:
    """Withdraw an effect that has not happened, and its open gate with it."""
    answered = commands.supersede(origin, effect, observe)
    if answered.refusal is None:
        for gate in Gate.objects.select_for_update().filter(effect=effect, status__in=OPEN):
            gates.close(gate, "cancelled", "superseded", origin.received_us, origin.actor)
    return answered


def follow(rows: Iterable[EffectRow], received_us: int) -> None:
    """Close the open gates of effects that went on without them: reported as done, or withdrawn."""
    moved = [row.id for row in rows if row.leave_ref and (row.leave in ("used", "bypassed") or row.superseded_mark)]
    if not moved:
        return
    for gate in Gate.objects.select_for_update().filter(effect__in=moved, status__in=OPEN).select_related("effect"):
        effect = gate.effect
        if effect.leave == "used" and gate.status == "approved" and not gates.over(gate, received_us):
            gates.use(gate, max(effect.attempt_count, 1), received_us)
        elif effect.superseded_mark:
            gates.close(gate, "cancelled", "superseded", received_us)
        else:
            gates.close(gate, "cancelled", "bypassed", received_us)


def _leave(origin: Origin, wish: Plan, asked: Asked, force: InForce, opening: list[Request]) -> Grant:
    seen, judgement = _judge(force, origin, wish, asked)
    if judgement.outcome == "allow":
        return Grant("granted", "policy")
    if judgement.outcome == "deny":
        return Grant("refused", "policy")
    digest = binding(wish.session, origin.agent, wish.tool, wish.intent_digest, wish.values)
    final = Gate.objects.filter(session=wish.session, digest=digest, status="denied_final").first()
    if final is not None:
        return Grant("refused", "ruling", final.id.hex)
    covering = exemptions.covering(origin.project, seen, judgement.asking, wish.session, origin.received_us)
    identity = derived(wish.session, wish.effect_key)
    if covering is not None and exemptions.use(covering, origin, identity, wish.session):
        return Grant("granted", "exemption", covering.id.hex, covering.ends_at_us)
    requirement = judgement.requirement or Requirement()
    request = Request(uuid7(), origin, asked, force.policy_set, judgement.rule, requirement, digest)
    opening.append(request)
    return Grant(*LEAVE_OF["pending"], request.id.hex, origin.received_us + requirement.decide_within_s * US)


def _held(identity: UUID, origin: Origin, wish: Plan) -> Answered:
    row = effects.load([identity]).get(identity)
    if row is None:
        row = EffectRow(
            identity, origin.project, wish.session, origin.agent, wish.effect_key, 0, origin.received_us,
            origin.received_us, tool=wish.tool, intent_digest=wish.intent_digest,
        )  # fmt: skip
    return Answered(row, 409, HELD)


HELD: Final = Refusal("HELD", "A person has stopped this; do not act. Wait until the stop is lifted, then ask again.")


def _check(
    origin: Origin, row: EffectRow, preconditions: Mapping[str, Any] | None, found: list[Gate]
) -> Refusal | None:
    """The last look before leave is used: stops, the gate's clocks and bindings, and a policy that grew stricter."""
    force, stops = policies.standing(row.project_id)
    if stops and holds.stopping(row.project_id, row.session_id, row.agent_id, row.tool, row.id) is not None:
        return HELD
    now = origin.received_us
    if row.leave == "pending" and commands.lapsed(row, now):
        gates.settle_of(row, now)
    if row.leave != "granted":
        return None
    if row.leave_basis == "ruling":
        gate = Gate.objects.select_for_update().get(id=UUID(hex=row.leave_ref))
        gates.settle(row, gate, now)
        if gate.status == "approved":
            refused = _unbound(row, gate, preconditions, now) or _stricter(row, gate, force, now)
            if refused is None:
                found.append(gate)
            return refused
        return None
    if commands.lapsed(row, now):
        commands.give_leave(row, Grant("held", "lapsed", row.leave_ref), now)
        return None
    return _withdrawn(row, force, now)


def _unbound(row: EffectRow, gate: Gate, preconditions: Mapping[str, Any] | None, now: int) -> Refusal | None:
    digest = binding(row.session_id, row.agent_id, row.tool, row.intent_digest, reading.target_of(row))
    if digest != gate.digest:
        gates.end(row, gate, "revoked", "digest_mismatch", now)
        sentence = "What is planned is no longer what people saw; plan it anew."
        return Refusal("INTENT_MISMATCH", sentence, "digest_mismatch")
    if gate.preconditions_digest and preconditions_digest(preconditions) != gate.preconditions_digest:
        sentence = "The preconditions are not those that people saw; plan it again with those that hold now."
        gates.end(row, gate, "revoked", "precondition_changed", now)
        return Refusal("INTENT_MISMATCH", sentence, "precondition_changed")
    return None


def _stricter(row: EffectRow, gate: Gate, force: InForce | None, now: int) -> Refusal | None:
    """Refuse when the rules in force now would ask for more than the people who ruled were asked for."""
    judgement = _judged_again(row, force)
    if judgement is None or judgement.outcome == "allow":
        return None
    if judgement.outcome == "ask":
        needed = (judgement.requirement or Requirement()).strengthened(gate.reversibility)
        if needed.hash == gate.requirement_hash or not is_stricter(needed, Requirement.of(gate.requirement)):
            return None
    gates.end(row, gate, "revoked", "requirement_changed", now)
    sentence = "The policy asks for more than it did when this was approved; plan it again."
    return Refusal("GATE_GONE", sentence, "requirement_changed")


def _withdrawn(row: EffectRow, force: InForce | None, now: int) -> Refusal | None:
    """Take back leave that policy, exemption or observing gave, when the rules in force now would not give it."""
    if row.leave_basis == "exemption" and not exemptions.stands(UUID(hex=row.leave_ref), now):
        commands.give_leave(row, Grant("held", "revoked"), now)
        return Refusal("GATE_GONE", "The exemption was revoked; plan the effect again to ask.", "revoked")
    judgement = _judged_again(row, force)
    if judgement is None or judgement.outcome == "allow":
        return None
    if judgement.outcome == "ask" and row.leave_basis == "exemption":
        return None
    commands.give_leave(row, Grant("held", "revoked"), now)
    sentence = "The policy in force now asks for leave first; plan the effect again."
    return Refusal("GATE_GONE", sentence, "requirement_changed")


def _judged_again(row: EffectRow, force: InForce | None) -> Judgement | None:
    """What the policy in force says now, if it is another than the one that judged the plan; None when it is not."""
    if force is None or force.mode != "enforce":
        return None
    if row.enforced and row.judged_by.startswith(f"{force.name}/"):
        return None
    return judge(force.compiled, reading.wish_of_stored(row), force.mode, reading.counter_of_stored(row))
