"""Take an answer back within five seconds: a new request takes the place of the answered one.

What was written stays: the vote, its ruling and the end of the request. The answer that was taken
back is one entry more, `gate.undone`, which names the new request. Dispatch locks the same rows,
so of an undo and a dispatch exactly one succeeds (docs/decisions/0042-undo.md).
"""

from typing import Any, Final

from django.db import transaction

from accounts.models import Membership
from accounts.people import ensure_pseudonym
from approvals.gates import gates
from approvals.gates.gates import LockedGate
from approvals.gates.statuses import UNDO_S, US
from approvals.models import Gate, Vote
from approvals.voting.eligibility import NOT_A_REVIEWER, is_gate_reviewer
from approvals.voting.votes import VoteResult
from db.clock import now_us
from db.ids import new_uuid7
from journal import entries
from sessions.models import ENDED, Session

TOO_LATE: Final = (
    "undo_too_late",
    f"You can take an answer back for {UNDO_S} seconds only; it stands now."
    " You can still revoke an approval that the agent has not used.",
)
ALREADY_USED: Final = (
    "already_used",
    "The agent has already used this approval, so the answer stands.",
)
NOT_ANSWERED: Final = ("not_eligible", "You have not answered this request: nothing to take back.")
SAID_TO_AGENT: Final = (
    "undo_not_possible",
    "Only an approval or a denial can be taken back; the agent has your message already.",
)
OVERTAKEN: Final = (
    "undo_not_possible",
    "The request went on after your answer, so the answer stands. Open it to see its state.",
)

# Statuses of a request that an answer led to -> the permission that its effect then has.
_UNDOABLE_STATUSES: Final = {"pending": "pending", "approved": "granted", "denied": "denied"}


def find_undo_state(gate: Gate, user_id: int) -> str:
    """Return what became of a person's answer: "undoable", "used", or empty once it stands."""
    since = now_us() - UNDO_S * US
    own = Vote.objects.filter(gate=gate, user=user_id, answer__in=("approve", "deny"))
    if not own.filter(voted_at_us__gte=since).exists():
        return ""
    status = Gate.objects.values_list("status", flat=True).get(id=gate.id)
    if status == "used":
        return "used"
    return "undoable" if status in _UNDOABLE_STATUSES else ""


@transaction.atomic(savepoint=False)
def undo_vote(gate: Gate, membership: Membership) -> VoteResult:
    """Take the person's answer back and make the request again, or return why not.

    The result's gate is the new request. Raises GateConflict when the gate changed concurrently:
    run the transaction again.
    """
    session = Session.objects.select_for_update().get(id=gate.session_id)
    locked = gates.lock_gate(gate)
    vote = Vote.objects.filter(gate=gate, user=membership.user).first()
    refusal = find_undo_refusal(locked, vote)
    if not is_gate_reviewer(locked.gate, membership):
        refusal = NOT_A_REVIEWER
    elif refusal is None and session.status in ENDED:
        refusal = OVERTAKEN
    if refusal is not None or vote is None:
        return VoteResult(locked.gate, refusal)
    return VoteResult(_ask_again(locked, vote), vote=vote)


def find_undo_refusal(locked: LockedGate, vote: Vote | None) -> tuple[str, str] | None:
    """Return why a vote on a locked gate stands; None if it can be taken back. Pure."""
    row, gate, at_us = locked
    if vote is None:
        return NOT_ANSWERED
    if vote.answer not in ("approve", "deny"):
        return SAID_TO_AGENT
    if gate.status == "used":
        return ALREADY_USED
    if at_us > vote.voted_at_us + UNDO_S * US:
        return TOO_LATE
    permission = _UNDOABLE_STATUSES.get(gate.status)
    if (row.state, row.permission, row.permission_ref) != ("planned", permission, gate.id.hex):
        return OVERTAKEN
    return None


def _ask_again(locked: LockedGate, vote: Vote) -> Gate:
    """End the answered request, unless its denial did, and open the new one."""
    row, gate, at_us = locked
    identity, actor = new_uuid7(), ensure_pseudonym(vote.user)
    facts: dict[str, Any] = {"vote": vote.position, "again": identity.hex}
    entries.record_system_entry(
        gate.project_id,
        "gate.undone",
        event_id=entries.keyed_digest("undone", vote.id.hex),
        text=entries.dump_sorted_json({"kind": "gate.undone", "gate": gate.id, **facts}),
        received_us=at_us,
        actor=actor,
        facts=entries.dump_sorted_json(facts),
        session=gate.session_id,
        effect=gate.effect_id,
        subject=gate.id,
    )
    if gate.status != "denied":
        status = "revoked" if gate.status == "approved" else "cancelled"
        gates.end_gate(row, gate, status, "undone", at_us, actor)
    gates.reopen_gate(row, gate, identity, at_us)
    return Gate.objects.get(id=identity)
