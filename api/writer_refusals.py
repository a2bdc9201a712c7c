"""Answers to agents that may not write to a session: OTHER_AGENT, LEASE_LOST, SESSION_ENDED."""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from api import idempotency
from api.idempotency import Reply
from api.problems import Problem
from api.serializers.leases import lease_to_json
from journal import entries
from journal.entries import Origin, RepeatedKey
from sessions import lease_queries, writers
from sessions.models import Lease
from sessions.writers import HELD_BY_ANOTHER_TEXT, WriterNotAllowed, WriterStatus

OTHER_AGENT_TEXT: Final = (
    "This session belongs to another agent. Leave the work to that agent, or ask an administrator"
    " to put both agents in one team."
)
SESSION_ENDED_TEXT: Final = "The session has ended. Open a new session to continue the work."


def refuse_writer(refused: WriterNotAllowed, replay: Callable[[], Reply | None]) -> Reply:
    """Refuse an agent that may not write to the session, and record the attempt.

    A command that has succeeded before gets its stored response.
    """
    origin = refused.origin
    if idempotency.has_stored_response(origin) and (reply := replay()) is not None:
        return reply
    entries.append_entries([refused.draft], origin.received_us)
    if refused.standing is WriterStatus.OTHER_AGENT:
        return Reply(403, Problem(403, "OTHER_AGENT", OTHER_AGENT_TEXT).as_dict(), kept=False)
    lease = load_fencing_lease(origin.project, refused.session, refused.task)
    return build_lease_lost(lease, HELD_BY_ANOTHER_TEXT)


def check_lease_epoch(
    origin: Origin, session: UUID, kind: str, task: UUID | None = None
) -> Reply | None:
    """Return a refusal if the command's lease epoch is not current; else None.

    The session's row must be locked. Raises RepeatedKey if the command ran before, under any epoch.
    """
    stale = writers.check_epoch(origin.project, session, origin.lease_epoch, task)
    if stale is None:
        return None
    if entries.compare_with_stored(origin.draft(kind), origin.received_us) is not None:
        raise RepeatedKey
    writers.record_fenced_command(origin, session, stale, kind=kind, subject=task)
    lease = load_fencing_lease(origin.project, session, task)
    return build_lease_lost(lease, stale.sentence)


def build_lease_lost(lease: Lease | None, detail: str = writers.LEASE_LOST_TEXT) -> Reply:
    """Build a 409 LEASE_LOST with the current lease."""
    body = Problem(409, "LEASE_LOST", detail).as_dict()
    return Reply(409, body if lease is None else body | {"lease": lease_to_json(lease)}, kept=False)


def load_fencing_lease(project: UUID, session: UUID, task: UUID | None = None) -> Lease | None:
    """Return the lease that fences writes in a session or about one of its tasks."""
    lease_ids = [writers.derive_lease_id(project, "session", str(session))]
    if task is not None:
        lease_ids.append(writers.derive_lease_id(project, "task", str(task)))
    leases = {lease.kind: lease for lease in lease_queries.query_leases().filter(id__in=lease_ids)}
    return leases.get("task") or leases.get("session")
