"""The last look before leave is used: stops, clocks, whose leave it is and for what, and rules that grew stricter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from approvals import deadlines, exemptions, gates, policies, quorum, reading
from approvals.binding import TARGET, binding, may_be_same, preconditions_digest, same
from approvals.matching import Judgement, Requirement, Wish, is_stricter, judge
from approvals.models import Exemption, Gate
from approvals.policies import InForce
from approvals.quorum import Yes
from approvals.states import STEP_UPS
from ledger import declared, holds, leaves
from ledger.commands import Plan
from ledger.leaves import Grant, Refusal
from ledger.rows import EffectRow
from sessions import fences
from sessions.origin import Origin


class Judged(NamedTuple):
    """A wish, what the rules in force say of it, and what its effect keeps of that."""

    force: InForce
    wish: Wish
    judgement: Judgement

    @property
    def columns(self) -> dict[str, Any]:
        return {
            "judged": self.judgement.outcome,
            "judged_by": f"{self.force.name}/{self.judgement.rule}",
            "judged_as": f"{self.wish.tool_class}/{self.wish.reversibility}",
            "enforced": self.force.mode == "enforce",
        }


def denied_for_good(agent: UUID, wish: Plan) -> UUID | None:
    """The gate on which people denied the same for the rest of the session, if there is one.

    What a target does not name can be anything, so what was denied is refused where its target may be the same: an
    agent does not get round a no by naming less, or more. On whose behalf does not matter either.
    """
    found = Gate.objects.filter(
        session=wish.session, status="denied_final", agent=agent, tool=wish.tool
    )
    rows = found.filter(intent_digest=wish.intent_digest).values_list(
        "id", *(f"effect__{name}" for name in TARGET)
    )
    own = tuple(wish.values.get(name) or "" for name in TARGET)
    return next(
        (gate for gate, *theirs in rows.order_by("opened_position") if may_be_same(own, theirs)),
        None,
    )


HELD: Final = Refusal(
    "HELD", "A person has stopped this; do not act. Wait until the stop is lifted, then ask again."
)


@dataclass(slots=True)
class Found:
    """What a last look saw: the gate whose leave may be used, and the fence of the work."""

    gate: Gate | None = None
    fence: int | None = None
    same_call: bool = False  # it may have happened in another session


TAKE_IT: Final = (
    "The session has ended: its lease is taken with to_compensate, to undo what was done there."
)


class Whole(NamedTuple):
    """All arguments that are about to be used, and whether the intent was said to leave out some of them."""

    arguments: Any
    leaves_out: bool


def check(
    origin: Origin,
    row: EffectRow,
    preconditions: Mapping[str, Any] | None,
    whole: Whole | None,
    found: Found,
) -> Refusal | None:
    """Why leave that looks granted is not used, or None; what else was seen is put into `found`."""
    present = policies.grounds(
        row.project_id,
        row.session_id,
        row.repository_id,
        task=row.task_id,
        intent=row.intent_digest,
    )
    force, stops, final, ended, patterns, *_others = present
    found.fence, found.same_call = present.fence, present.same_call
    stale = fences.compare(origin.lease_epoch, present.fence, needed=present.leased)
    if stale is not None:
        fences.refuse(origin, row.session_id, stale, kind="effect.dispatched", effect=row.id)
        return Refusal("LEASE_LOST", f"{stale.sentence} {TAKE_IT}" if ended else stale.sentence)
    if stops and _is_stopped(origin, row):
        return HELD
    now = origin.received_us
    if row.leave == "pending" and leaves.lapsed(row, now):
        deadlines.settle_of(row, now)
    if row.leave != "granted":
        return None
    gate = None
    if row.leave_basis == "ruling":
        gate = Gate.objects.select_for_update().get(id=UUID(hex=row.leave_ref))
        deadlines.settle(row, gate, now)
        if gate.status != "approved":
            return None
    elif leaves.lapsed(row, now):
        leaves.change_leave(row, Grant("held", "lapsed"), now)
        return None
    if force is not None and force.mode == "enforce" and origin.agent != row.agent_id:
        return _ANOTHERS
    if whole is not None and row.leave_basis != "observe":
        refused = _other_words(row, whole)
        if refused is not None:
            return refused
    if final:
        refused = _denied_meanwhile(row, gate, now)
        if refused is not None:
            return refused
    if gate is None:
        return _withdrawn(origin, row, force, patterns, found)
    yes = quorum.yeses([gate.id])[gate.id]
    counting = [one for one in yes if not one.fault]
    refused = _unbound(row, gate, preconditions, now)
    if refused is None and len(counting) < gate.minimum:
        gates.end(row, gate, "revoked", "quorum_lost", now, told=quorum.told(yes))
        refused = _QUORUM_LOST
    refused = refused or _stricter(
        origin, row, gate, counting, _judged_again(origin, row, force, patterns, found)
    )
    if refused is None:
        found.gate = gate
    return refused


def once_more(
    origin: Origin, row: EffectRow, preconditions: Mapping[str, Any] | None, whole: Whole | None
) -> Refusal | None:
    """Why leave that an attempt used already does not serve another one, as the verdict table would let it, or None.

    `check` has looked for stops. What people ruled on must still be what is about to run, and enough for the rules and
    facts of now; a gate that was used stays as it is, whatever is found.
    """
    force, _, final, _, patterns, *_others = policies.grounds(
        row.project_id, row.session_id, row.repository_id
    )
    if force is not None and force.mode == "enforce" and origin.agent != row.agent_id:
        return _ANOTHERS
    if whole is not None and row.leave_basis != "observe":
        refused = _other_words(row, whole)
        if refused is not None:
            return refused
    if final:
        wish = Plan(
            row.session_id, row.effect_key, row.tool, row.intent_digest, reading.target_of(row)
        )
        if denied_for_good(row.agent_id, wish) is not None:
            return _DENIED
    exempted = row.leave_basis == "exemption"
    judged = _judged_again(origin, row, force, patterns, anyway=exempted)
    if row.leave_basis == "ruling":
        return _still_ruled(row, preconditions, judged)
    if exempted and not exemptions.stands(UUID(hex=row.leave_ref), origin.received_us):
        return _EXEMPTION_GONE
    if judged is None or judged.judgement.outcome == "allow":
        return None
    return (
        None
        if exempted and _exempting(origin, row, judged, UUID(hex=row.leave_ref)) is not None
        else _TO_BE_ASKED
    )


def _still_ruled(
    row: EffectRow, preconditions: Mapping[str, Any] | None, judged: Judged | None
) -> Refusal | None:
    gate = Gate.objects.filter(id=UUID(hex=row.leave_ref), status="used").first()
    if gate is None:
        return _TO_BE_ASKED
    refused = _not_bound(row, gate, preconditions)
    if refused is not None:
        return refused
    counting = [one for one in quorum.yeses([gate.id])[gate.id] if not one.fault]
    if len(counting) < gate.minimum:
        return _QUORUM_LOST
    return _MORE_IS_ASKED if judged is not None and _asks_more(gate, counting, judged) else None


def _is_stopped(origin: Origin, row: EffectRow) -> bool:
    """True when a stop covers the effect, by the agent that planned it or by the one that is about to start it."""
    standing = holds.live(row.project_id)
    agents = {row.agent_id, origin.agent}
    return any(
        holds.covering(standing, row.session_id, agent, row.tool, row.id) for agent in agents
    )


_ANOTHERS: Final = Refusal(
    "NO_LEAVE",
    "This leave was given to another agent; plan an effect of your own and ask for it.",
    "digest_mismatch",
)
_OTHER_WORDS: Final = Refusal(
    "INTENT_MISMATCH",
    "Arguments that the intent leaves out are not as they were planned; send those, or plan anew.",
    "digest_mismatch",
)
_ERASED: Final = Refusal(
    "INTENT_MISMATCH",
    "What was planned has been erased, so nothing can be compared with it; plan a new effect.",
    "digest_mismatch",
)
_QUORUM_LOST: Final = Refusal(
    "GATE_GONE",
    "Of those who approved this, too few may still rule; plan it again to ask others.",
    "quorum_lost",
)
_DENIED: Final = Refusal(
    "GATE_DENIED", "People denied this for the rest of the session; do not act.", "denied_final"
)


def _other_words(row: EffectRow, whole: Whole) -> Refusal | None:
    """Refuse where arguments that the intent leaves out, by the plan's word or now, are not those that got leave."""
    planned = reading.plan_body(row.plan_position)
    if not planned:
        return _ERASED
    if not (whole.leaves_out or planned.get("free_text")):
        return None  # the intent holds them all
    return None if same(planned.get("arguments", {}), whole.arguments) else _OTHER_WORDS


def _denied_meanwhile(row: EffectRow, gate: Gate | None, now: int) -> Refusal | None:
    wish = Plan(row.session_id, row.effect_key, row.tool, row.intent_digest, reading.target_of(row))
    denied = denied_for_good(row.agent_id, wish)
    if denied is None:
        return None
    if gate is not None:
        gates.end(row, gate, "revoked", "denied_final", now)
    leaves.change_leave(row, Grant("refused", "ruling", denied.hex), now)
    return _DENIED


_NOT_AS_SEEN: Final = Refusal(
    "INTENT_MISMATCH",
    "What is planned is no longer what people saw; plan it anew.",
    "digest_mismatch",
)
_OTHER_PRECONDITIONS: Final = Refusal(
    "INTENT_MISMATCH",
    "The preconditions are not those that people saw; plan it again with those that hold now.",
    "precondition_changed",
)
_MORE_IS_ASKED: Final = Refusal(
    "GATE_GONE",
    "More is asked for than when this was approved; plan it again.",
    "requirement_changed",
)
_EXEMPTION_GONE: Final = Refusal(
    "GATE_GONE", "The exemption was revoked; plan the effect again to ask.", "revoked"
)
_TO_BE_ASKED: Final = Refusal(
    "GATE_GONE",
    "As things are now, leave must be asked for first; plan the effect again.",
    "requirement_changed",
)


def _not_bound(
    row: EffectRow, gate: Gate, preconditions: Mapping[str, Any] | None
) -> Refusal | None:
    """Refuse what is not what people saw."""
    bound = (row.session_id, row.agent_id, row.tool, row.intent_digest, reading.target_of(row))
    if binding(*bound, reading.on_behalf_of(row.session_id)) != gate.digest:
        return _NOT_AS_SEEN
    if (
        gate.preconditions_digest
        and preconditions_digest(preconditions) != gate.preconditions_digest
    ):
        return _OTHER_PRECONDITIONS
    return None


def _unbound(
    row: EffectRow, gate: Gate, preconditions: Mapping[str, Any] | None, now: int
) -> Refusal | None:
    refused = _not_bound(row, gate, preconditions)
    if refused is not None:
        gates.end(row, gate, "revoked", refused.reason, now)
    return refused


def _stricter(
    origin: Origin, row: EffectRow, gate: Gate, yes: Sequence[Yes], judged: Judged | None
) -> Refusal | None:
    """Refuse when the rules and facts of now ask for more than the people who ruled were asked for, or gave."""
    if judged is None or not _asks_more(gate, yes, judged):
        return None
    gates.end(row, gate, "revoked", "requirement_changed", origin.received_us)
    return _MORE_IS_ASKED


def _asks_more(gate: Gate, yes: Sequence[Yes], judged: Judged) -> bool:
    if judged.judgement.outcome != "ask":
        return judged.judgement.outcome == "deny"
    about = reading.about_now(gate)
    needed = (judged.judgement.requirement or Requirement()).strengthened(
        about.reversibility, about.risk
    )
    proof = min((one.step_up for one in yes), key=STEP_UPS.index)
    met = Requirement.of(gate.requirement).met_by(proof, min(one.reason_characters for one in yes))
    return needed.hash != gate.requirement_hash and is_stricter(needed, met)


def _withdrawn(
    origin: Origin, row: EffectRow, force: InForce | None, patterns: int | None, found: Found
) -> Refusal | None:
    """Take back leave that policy, exemption or observing gave, when rules and facts of now would not give it."""
    now, exempted = origin.received_us, row.leave_basis == "exemption"
    if exempted and not exemptions.stands(UUID(hex=row.leave_ref), now):
        leaves.change_leave(row, Grant("held", "revoked"), now)
        return _EXEMPTION_GONE
    judged = _judged_again(origin, row, force, patterns, found, anyway=exempted)
    if (
        judged is None
        or judged.judgement.outcome == "allow"
        or (exempted and _still_exempted(origin, row, judged))
    ):
        return None
    leaves.change_leave(row, Grant("held", "revoked"), now)
    return _TO_BE_ASKED


def _still_exempted(origin: Origin, row: EffectRow, judged: Judged) -> bool:
    """True when an exemption covers what asks now; where it is another one, leave moves there, and that is a use."""
    found = _exempting(origin, row, judged)
    if found is None or found.id.hex == row.leave_ref:
        return found is not None
    if not exemptions.use(found, origin, row.id, row.session_id, row.attempt_count):
        return False
    leaves.change_leave(
        row, Grant("granted", "exemption", found.id.hex, found.ends_at_us), origin.received_us
    )
    return True


def _exempting(
    origin: Origin, row: EffectRow, judged: Judged, only: UUID | None = None
) -> Exemption | None:
    """The exemption that covers what asks now, by whoever may grant one now and has no part in it."""
    asking = judged.judgement.asking if judged.judgement.outcome == "ask" else ()
    again = row.id if row.attempt_count else None
    place = (row.session_id, row.agent_id, origin.received_us, again)
    return exemptions.covering(
        row.project_id, judged.wish, asking, *place, judged.judgement.suspension, only
    )


def _judged_again(
    origin: Origin,
    row: EffectRow,
    force: InForce | None,
    patterns: int | None,
    found: Found | None = None,
    *,
    anyway: bool = False,
) -> Judged | None:
    """What the policy in force says now; None where nothing is other than when leave was decided, but for `anyway`.

    Other are the rules themselves, the declaration of the tool, the repository's patterns of refs, or that the same
    call may have happened in another session.
    """
    if force is None or force.mode != "enforce":
        return None
    same_rules = row.enforced and row.judged_by.startswith(f"{force.name}/")
    same_tool = row.judged_as == declared.tool(row.project_id, row.tool).judged_as
    alone = found is None or not found.same_call
    if (
        not anyway
        and same_rules
        and same_tool
        and alone
        and row.ref_patterns_version in (None, patterns)
    ):
        return None
    plan = reading.plan_body(row.plan_position)
    seen = reading.wish_of_stored(row, origin.source, plan)
    if (
        not plan
    ):  # erased: a rule that looks at arguments would find none, and nobody is let through by that
        return Judged(force, seen, Judgement("deny", "", None, "the plan was erased"))
    return Judged(
        force, seen, judge(force.compiled, seen, force.mode, reading.counter_of_stored(row))
    )
