"""Ends gates that nobody needs to rule on any more: by an agent that may speak for them, or with their session."""

from uuid import UUID

from approvals import deadlines, gates
from approvals.models import Gate
from approvals.states import OPEN
from journal import entries
from ledger.leaves import as_text
from sessions import speakers
from sessions.origin import Origin, Repeated


def find(origin: Origin, gate: UUID) -> Gate | None:
    """The gate that is to be withdrawn, with its effect. None when the project has no such gate.

    Raises NotAllowed where neither who sends this asked for it, nor may speak for its session.
    """
    found = Gate.objects.select_related("effect").filter(project=origin.project, id=gate).first()
    if found is not None:
        about = found.effect
        speakers.expect(
            origin,
            found.session_id,
            "gate.cancelled",
            task=about.task_id,
            effect=about.id,
            also=found.agent_id,
        )
    return found


def cancel(origin: Origin, known: Gate) -> Gate:
    """Withdraw a request that `find` gave. A gate that has ended stays as it is and is returned. Raises Repeated."""
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
