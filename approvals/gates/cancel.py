"""Cancel gates: withdrawn by an agent, or because their session ended."""

from uuid import UUID

from approvals.gates import gates
from approvals.gates.statuses import OPEN_STATUSES
from approvals.models import Gate
from journal import entries
from journal.entries import Origin, RepeatedKey
from sessions import writers


def find_gate_to_cancel(origin: Origin, gate: UUID) -> Gate | None:
    """Return the gate to withdraw, with its effect; None if the project has none.

    Raises WriterNotAllowed if the sender neither requested it nor may speak for its session.
    """
    row = Gate.objects.select_related("effect").filter(project=origin.project, id=gate).first()
    if row is not None:
        effect = row.effect
        writers.require_writer(
            origin,
            row.session_id,
            "gate.cancelled",
            task=effect.task_id,
            effect=effect.id,
            also=row.agent_id,
        )
    return row


def cancel_gate_by_agent(origin: Origin, request: Gate) -> Gate:
    """Withdraw a request that `find_gate_to_cancel` returned. Raises RepeatedKey.

    A gate that has ended does not change and is returned.
    """
    row, locked, _ = gates.lock_gate(request)
    draft = origin.draft(
        "gate.cancelled",
        facts=entries.dump_sorted_json({"reason": "by_agent"}),
        session=request.session_id,
        effect=request.effect_id,
        subject=request.id,
    )
    if gates.current_gate_status(locked, origin.received_us) not in OPEN_STATUSES:
        if entries.compare_with_stored(draft, origin.received_us) is not None:
            raise RepeatedKey  # this command had already ended it
        return locked
    # The journal entry is the command's own, under the agent's idempotency key.
    origin.append_draft(draft)
    gates.change_gate_status(locked, "cancelled", ended_at_us=origin.received_us, reason="by_agent")
    gates.enqueue_gate_notification(locked, origin.received_us)
    gates.apply_gate_to_permission(row, locked, origin.received_us)
    return locked


def cancel_gates_of_session(session: UUID, received_us: int) -> int:
    """Cancel every open gate of a session that ended; return how many."""
    cancelled_count = 0
    for gate in Gate.objects.filter(session=session, status__in=OPEN_STATUSES).order_by("effect"):
        row, locked, _ = gates.lock_gate(gate)
        if gates.current_gate_status(locked, received_us) in OPEN_STATUSES:
            gates.end_gate(row, locked, "cancelled", "session_ended", received_us)
            cancelled_count += 1
    return cancelled_count
