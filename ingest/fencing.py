"""What a door says to a writer whose lease another took: 409 with the lease as it stands, and a trace in the book."""

from typing import Any, Final
from uuid import UUID

from ingest.problems import Problem
from ingest.reply import Reply
from sessions import fences, leases
from sessions.fences import Stale
from sessions.models_leases import Lease
from sessions.origin import Origin

LOST: Final = "This lease is no longer yours under that epoch; stop this work, and acquire the lease again."
NEEDED: Final = "This session is worked on under a lease; send lease_epoch, the epoch of the lease that you hold."


def check(origin: Origin, session: UUID, kind: str, task: UUID | None = None) -> Reply | None:
    """A refusal where the command comes under another epoch than stands; the session's row must be locked."""
    stale = fences.check(origin.project, session, origin.lease_epoch, task)
    if stale is None:
        return None
    fences.refuse(origin, session, stale, kind=kind, subject=task)
    return refused(standing(origin.project, session, task), stale)


def refused(lease: Lease | None, stale: Stale | None = None, **more: Any) -> Reply:
    """409 LEASE_LOST, with the lease."""
    detail = NEEDED if stale is not None and stale.given is None else LOST
    body = Problem(409, "LEASE_LOST", detail).as_dict() | more
    return Reply(409, body if lease is None else body | {"lease": describe(lease)}, kept=False)


def standing(project: UUID, session: UUID, task: UUID | None = None) -> Lease | None:
    """The lease by which writes in a session, or about a task of it, are fenced."""
    named = [fences.lease_id(project, "session", str(session))]
    if task is not None:
        named.append(fences.lease_id(project, "task", str(task)))
    found = {lease.kind: lease for lease in leases.read().filter(id__in=named)}
    return found.get("task") or found.get("session")


def describe(lease: Lease) -> dict[str, Any]:
    """A lease in an answer; its times are the database's."""
    return leases.told(lease, lease.now_us)
