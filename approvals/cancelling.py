"""Ends gates that nobody needs to rule on any more: by the agent that asked, or with their session."""

from uuid import UUID

from approvals import deadlines, gates
from approvals.models import Gate
from approvals.states import OPEN
from journal import entries
from ledger.leaves import as_text
from sessions.origin import Origin, Repeated


def cancel(origin: Origin, gate: UUID) -> Gate | None:
    """Withdraw a request: only the agent that asked may. None when the project has no such gate of that agent.

    A gate that has ended stays as it is and is returned.
    """
    known = Gate.objects.filter(project=origin.project, id=gate, agent=origin.agent).first()
    if known is None:
        return None
    row, locked, _ = deadlines.lock(known)
    draft = origin.draft(
        "gate.cancelled",
        facts=as_text({"reason": "by_agent"}),
        session=known.session_id,
        effect=known.effect_id,
        subject=known.id,
    )
    if deadlines.current_status(locked, origin.received_us) not in OPEN:
        if entries.look(draft, origin.received_us) is not None:
            raise Repeated  # it ended by this very command
        return locked
    # The command's own entry says it, under the agent's key.
    if entries.append([draft], origin.received_us)[0].status is not entries.Status.CREATED:
        raise Repeated
    gates.move(locked, "cancelled", ended_at_us=origin.received_us, reason="by_agent")
    gates.tell(locked, origin.received_us)
    gates.follow(row, locked, origin.received_us)
    return locked


def cancel_of_session(session: UUID, received_us: int) -> int:
    """End every open gate of a session that ended, and return how many."""
    ended = 0
    for gate in Gate.objects.filter(session=session, status__in=OPEN).order_by("effect"):
        row, locked, _ = deadlines.lock(gate)
        if deadlines.current_status(locked, received_us) in OPEN:
            gates.end(row, locked, "cancelled", "session_ended", received_us)
            ended += 1
    return ended
