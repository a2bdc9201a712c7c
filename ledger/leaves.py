"""Leave, as the ledger knows it: what was given, what a refusal says, and what an agent may do now.

Who decides about leave is approvals' matter; `basis` and `ref` are words the ledger keeps and does not read.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from journal import entries
from journal.clock import now_us
from ledger import effects
from ledger.rows import EffectRow


class Grant(NamedTuple):
    """Leave for one attempt, as approvals decided it. `ref` is opaque to the ledger."""

    leave: str
    basis: str
    ref: str = ""
    until_us: int | None = None


class Refusal(NamedTuple):
    """A code of protocol.md with its sentence, and as `reason` why leave was not there, in a word of approvals.md."""

    code: str
    sentence: str
    reason: str = ""


def lapsed(row: EffectRow, now_us: int) -> bool:
    """True when leave was given and its time is over; whoever reads treats a passed deadline as passed."""
    return row.lapsed(now_us)


def give_leave(row: EffectRow, grant: Grant, received_us: int) -> None:
    """Let a locked effect stand under `grant`; the entry that says why is the caller's."""
    row.leave, row.leave_basis, row.leave_ref, row.leave_until_us = grant
    row.changed_us = max(row.changed_us, received_us)
    effects.write([row], [])


def change_leave(row: EffectRow, grant: Grant, received_us: int) -> None:
    """Let a locked effect stand under `grant`, given or withheld, and say so in the book."""
    kind = "effect.withheld" if grant.leave in _WITHHELD else "effect.granted"
    record = said_of(grant, {name: getattr(row, name) for name in _JUDGEMENT})
    facts = as_text(record | ({"plan": row.plan_position} if row.plan_position is not None else {}))
    entries.record(
        row.project_id,
        kind,
        event_id=entries.keyed_digest("granted", str(row.id), str(row.version)),
        text=as_text({"effect": row.id, **orjson.loads(facts)}),
        received_us=received_us,
        facts=facts,
        session=row.session_id,
        effect=row.id,
    )
    give_leave(row, grant, received_us)


_WITHHELD: Final = ("held", "pending", "refused")
_JUDGEMENT: Final = ("judged", "judged_by", "judged_as", "enforced")


def said_of(grant: Grant, judgement: Mapping[str, Any]) -> dict[str, Any]:
    """What the book keeps of leave: the word, its basis, what it refers to and until when, and what the policy said."""
    record = {
        "leave": grant.leave,
        "basis": grant.basis,
        "ref": grant.ref,
        "until_us": grant.until_us,
    }
    record |= {name: judgement.get(name) for name in _JUDGEMENT}
    return {name: value for name, value in record.items() if value}


COMPENSATION_OPEN: Final = Refusal(
    "COMPENSATION_OPEN",
    "Another compensation of this effect is open; finish or supersede it first.",
)
ALREADY_DISPATCHED: Final = Refusal(
    "ALREADY_DISPATCHED",
    "Another process or key dispatched an attempt before; do not act, report what you know of it.",
    "already_used",
)
_GONE: Final = ("cancelled", "revoked", "lapsed", "returned")


def wrong_state(row: EffectRow) -> Refusal:
    """The command does not apply in this state."""
    sentence = (
        f"The effect is {row.state}; this command does not apply to it. Read it and decide anew."
    )
    return Refusal("WRONG_STATE", sentence)


def none_given(row: EffectRow) -> Refusal:
    """The refusal that fits the leave."""
    if row.leave == "pending":
        return Refusal(
            "GATE_PENDING", "People have not ruled yet; wait and ask again.", "not_resolved"
        )
    if row.leave == "refused" and row.leave_basis == "expired":
        sentence = "Nobody ruled in time, and that is a no; do not act. Supersede the effect, or plan another."
        return Refusal("GATE_EXPIRED", sentence, "expired")
    if row.leave == "refused":
        sentence = "Leave was refused; do not act. Supersede the effect or plan another."
        return Refusal("GATE_DENIED", sentence, "denied")
    if row.leave_basis in _GONE:
        sentence = (
            f"The leave is gone ({row.leave_basis}); do not act. Plan the effect again to ask anew."
        )
        return Refusal("GATE_GONE", sentence, row.leave_basis)
    sentence = "This effect has no leave; plan it again and act only when the answer is proceed."
    return Refusal("NO_LEAVE", sentence, "not_resolved")


def answer(effect: EffectRow, open_effect: UUID | None = None) -> str:
    """What the agent may do now: proceed | wait | blocked | done | ambiguous.

    Follows from state and leave alone, but for `open_effect`: what has to be settled first, this one or another.
    """
    if effect.state in ("compensated", "superseded"):
        return "done"
    if effect.state == "acknowledged":
        return "ambiguous" if effect.outcome == "unknown" else "done"
    if effect.state == "dispatched" or (effect.state == "failed" and effect.outcome == "unknown"):
        return "ambiguous"
    if open_effect is not None:
        return "ambiguous"
    if effect.leave == "granted":
        return "wait" if lapsed(effect, now_us()) else "proceed"
    if effect.leave == "pending":
        return "blocked" if lapsed(effect, now_us()) else "wait"  # nobody ruled in time
    gone = effect.leave == "held" and effect.leave_basis in _GONE
    return "blocked" if gone or effect.leave == "refused" or effect.state == "failed" else "wait"


def as_text(facts: dict[str, Any]) -> str:
    """Facts as the book keeps them: JSON with sorted keys."""
    return orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode()
