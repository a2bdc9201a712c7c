"""The last look before leave is used: stops, clocks, whose leave it is and for what, and rules that grew stricter."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from approvals import exemptions, gates, policies, reading
from approvals.binding import binding, preconditions_digest, same
from approvals.matching import Judgement, Requirement, Wish, is_stricter, judge
from approvals.models import Gate
from approvals.policies import InForce
from ledger import holds, leaves
from ledger.commands import Plan
from ledger.leaves import Grant, Refusal
from ledger.rows import EffectRow
from sessions.origin import Origin


class Judged(NamedTuple):
    """A wish, what the rules in force say of it, and what its effect keeps of that."""

    force: InForce
    wish: Wish
    judgement: Judgement

    @property
    def columns(self) -> dict[str, Any]:
        return judgement_columns(self.force, self.judgement)


def judgement_columns(force: InForce, judgement: Judgement) -> dict[str, Any]:
    """What an effect keeps of what the policy said of its plan."""
    return {
        "judged": judgement.outcome,
        "judged_by": f"{force.name}/{judgement.rule}",
        "enforced": force.mode == "enforce",
    }


def denied_for_good(agent: UUID, wish: Plan) -> UUID | None:
    """The gate on which people denied the very same for the rest of the session, if there is one.

    On whose behalf does not matter here: a session that says it only later, or anew, is denied all the same.
    """
    found = Gate.objects.filter(session=wish.session, status="denied_final")
    names = set(found.values_list("requester__person__pseudonym", flat=True))
    bound = (wish.session, agent, wish.tool, wish.intent_digest, wish.values)
    denied = found.filter(digest__in=[binding(*bound, name or "") for name in names])
    return denied.values_list("id", flat=True).first()


HELD: Final = Refusal("HELD", "A person has stopped this; do not act. Wait until the stop is lifted, then ask again.")


def check(
    origin: Origin, row: EffectRow, preconditions: Mapping[str, Any] | None, whole: Any, found: list[Gate]
) -> Refusal | None:
    """Why leave that looks granted is not used, or None. A gate whose leave may be used is put into `found`."""
    force, stops, final = policies.standing(row.project_id, row.session_id)
    if stops and _is_stopped(origin, row):
        return HELD
    now = origin.received_us
    if row.leave == "pending" and leaves.lapsed(row, now):
        gates.settle_of(row, now)
    if row.leave != "granted":
        return None
    gate = None
    if row.leave_basis == "ruling":
        gate = Gate.objects.select_for_update().get(id=UUID(hex=row.leave_ref))
        gates.settle(row, gate, now)
        if gate.status != "approved":
            return None
    elif leaves.lapsed(row, now):
        leaves.change_leave(row, Grant("held", "lapsed"), now)
        return None
    if force is not None and force.mode == "enforce" and origin.agent != row.agent_id:
        return _ANOTHERS
    if whole is not None and row.leave_basis != "observe" and not _as_planned(row, whole):
        return _OTHER_WORDS
    if final:
        refused = _denied_meanwhile(row, gate, now)
        if refused is not None:
            return refused
    if gate is None:
        return _withdrawn(origin, row, force)
    refused = _unbound(row, gate, preconditions, now) or _stricter(origin, row, gate, force)
    if refused is None:
        found.append(gate)
    return refused


def _is_stopped(origin: Origin, row: EffectRow) -> bool:
    """True when a stop covers the effect, by the agent that planned it or by the one that is about to start it."""
    standing = holds.live(row.project_id)
    agents = {row.agent_id, origin.agent}
    return any(holds.covering(standing, row.session_id, agent, row.tool, row.id) for agent in agents)


_ANOTHERS: Final = Refusal(
    "NO_LEAVE", "This leave was given to another agent; plan an effect of your own and ask for it.", "digest_mismatch"
)
_OTHER_WORDS: Final = Refusal(
    "INTENT_MISMATCH",
    "Arguments that the intent leaves out are not as they were planned; send those, or plan anew.",
    "digest_mismatch",
)
_DENIED: Final = Refusal("GATE_DENIED", "People denied this for the rest of the session; do not act.", "denied_final")


def _as_planned(row: EffectRow, whole: Any) -> bool:
    """True when all arguments, also those that the intent leaves out, are those of the plan that got leave."""
    planned = reading.plan_body(row.plan_position)
    return "arguments" in planned and same(planned["arguments"], whole)


def _denied_meanwhile(row: EffectRow, gate: Gate | None, now: int) -> Refusal | None:
    wish = Plan(row.session_id, row.effect_key, row.tool, row.intent_digest, reading.target_of(row))
    denied = denied_for_good(row.agent_id, wish)
    if denied is None:
        return None
    if gate is not None:
        gates.end(row, gate, "revoked", "denied_final", now)
    leaves.change_leave(row, Grant("refused", "ruling", denied.hex), now)
    return _DENIED


def _unbound(row: EffectRow, gate: Gate, preconditions: Mapping[str, Any] | None, now: int) -> Refusal | None:
    bound = (row.session_id, row.agent_id, row.tool, row.intent_digest, reading.target_of(row))
    digest = binding(*bound, reading.on_behalf_of(row.session_id))
    if digest != gate.digest:
        gates.end(row, gate, "revoked", "digest_mismatch", now)
        sentence = "What is planned is no longer what people saw; plan it anew."
        return Refusal("INTENT_MISMATCH", sentence, "digest_mismatch")
    if gate.preconditions_digest and preconditions_digest(preconditions) != gate.preconditions_digest:
        sentence = "The preconditions are not those that people saw; plan it again with those that hold now."
        gates.end(row, gate, "revoked", "precondition_changed", now)
        return Refusal("INTENT_MISMATCH", sentence, "precondition_changed")
    return None


def _stricter(origin: Origin, row: EffectRow, gate: Gate, force: InForce | None) -> Refusal | None:
    """Refuse when the rules in force now would ask for more than the people who ruled were asked for."""
    judged = _judged_again(origin, row, force)
    if judged is None or judged.judgement.outcome == "allow":
        return None
    if judged.judgement.outcome == "ask":
        needed = (judged.judgement.requirement or Requirement()).strengthened(gate.reversibility)
        if needed.hash == gate.requirement_hash or not is_stricter(needed, Requirement.of(gate.requirement)):
            return None
    gates.end(row, gate, "revoked", "requirement_changed", origin.received_us)
    sentence = "The policy asks for more than it did when this was approved; plan it again."
    return Refusal("GATE_GONE", sentence, "requirement_changed")


def _withdrawn(origin: Origin, row: EffectRow, force: InForce | None) -> Refusal | None:
    """Take back leave that policy, exemption or observing gave, when the rules in force now would not give it."""
    now, exempted = origin.received_us, row.leave_basis == "exemption"
    if exempted and not exemptions.stands(UUID(hex=row.leave_ref), now):
        leaves.change_leave(row, Grant("held", "revoked"), now)
        return Refusal("GATE_GONE", "The exemption was revoked; plan the effect again to ask.", "revoked")
    judged = _judged_again(origin, row, force)
    if judged is None or judged.judgement.outcome == "allow":
        return None
    asking = judged.judgement.asking if judged.judgement.outcome == "ask" else ()
    if exempted and exemptions.covering(row.project_id, judged.wish, asking, row.session_id, now) is not None:
        return None
    leaves.change_leave(row, Grant("held", "revoked"), now)
    sentence = "The policy in force now asks for leave first; plan the effect again."
    return Refusal("GATE_GONE", sentence, "requirement_changed")


def _judged_again(origin: Origin, row: EffectRow, force: InForce | None) -> Judged | None:
    """What the policy in force says now, if it is another than the one by which leave was decided; None if not."""
    if force is None or force.mode != "enforce":
        return None
    if row.enforced and row.judged_by.startswith(f"{force.name}/"):
        return None
    seen = reading.wish_of_stored(row, origin.source)
    return Judged(force, seen, judge(force.compiled, seen, force.mode, reading.counter_of_stored(row)))
