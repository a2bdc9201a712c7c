"""409 LEASE_LOST: rejects writers whose lease was taken over."""

from typing import Any
from uuid import UUID

from api.problems import Problem
from api.reply import Reply
from api.serializers.leases import lease_to_json
from journal import entries
from journal.entries import Origin, RepeatedKey
from sessions import lease_queries, writers
from sessions.models import Lease
from sessions.writers import StaleEpoch


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
    return build_lease_lost(load_fencing_lease(origin.project, session, task), stale)


def build_lease_lost(lease: Lease | None, stale: StaleEpoch | None = None, **more: Any) -> Reply:
    """Build a 409 LEASE_LOST with the current lease."""
    body = (
        Problem(
            409, "LEASE_LOST", writers.LEASE_LOST_TEXT if stale is None else stale.sentence
        ).as_dict()
        | more
    )
    return Reply(409, body if lease is None else body | {"lease": lease_to_json(lease)}, kept=False)


def load_fencing_lease(project: UUID, session: UUID, task: UUID | None = None) -> Lease | None:
    """Return the lease that fences writes in a session or about one of its tasks."""
    lease_ids = [writers.derive_lease_id(project, "session", str(session))]
    if task is not None:
        lease_ids.append(writers.derive_lease_id(project, "task", str(task)))
    leases = {lease.kind: lease for lease in lease_queries.query_leases().filter(id__in=lease_ids)}
    return leases.get("task") or leases.get("session")
