"""Cancel gates: withdrawn by an agent, or because their session ended."""

from uuid import UUID

from approvals import deadlines, gates
from approvals.models import Gate
from approvals.states import OPEN
from journal import entries
from ledger.leaves import as_text
from sessions import speakers
from sessions.origin import Origin, Repeated


def find(origin: Origin, gate: UUID) -> Gate | None:
    """Return the gate to withdraw, with its effect; None if the project has none.

    Raises NotAllowed if the sender neither requested it nor may speak for its session.
    """
    row = Gate.objects.select_related("effect").filter(project=origin.project, id=gate).first()
    if row is not None:
        effect = row.effect
        speakers.expect(
            origin,
            row.session_id,
            "gate.cancelled",
            task=effect.task_id,
            effect=effect.id,
            also=row.agent_id,
        )
    return row


def cancel(origin: Origin, request: Gate) -> Gate:
    """Withdraw a request that `find` returned. Raises Repeated.

    A gate that has ended does not change and is returned.
    """
    row, locked, _ = deadlines.lock(request)
    draft = origin.draft(
        "gate.cancelled",
        facts=as_text({"reason": "by_agent"}),
        session=request.session_id,
        effect=request.effect_id,
        subject=request.id,
    )
    if deadlines.current_status(locked, origin.received_us) not in OPEN:
        if entries.look(draft, origin.received_us) is not None:
            raise Repeated  # this command had already ended it
        return locked
    # The journal entry is the command's own, under the agent's idempotency key.
    if entries.append([draft], origin.received_us)[0].status is not entries.Status.CREATED:
        raise Repeated
    gates.move(locked, "cancelled", ended_at_us=origin.received_us, reason="by_agent")
    gates.tell(locked, origin.received_us)
    gates.follow(row, locked, origin.received_us)
    return locked


def cancel_of_session(session: UUID, received_us: int) -> int:
    """Cancel every open gate of a session that ended; return how many."""
    cancelled_count = 0
    for gate in Gate.objects.filter(session=session, status__in=OPEN).order_by("effect"):
        row, locked, _ = deadlines.lock(gate)
        if deadlines.current_status(locked, received_us) in OPEN:
            gates.end(row, locked, "cancelled", "session_ended", received_us)
            cancelled_count += 1
    return cancelled_count
