"""What a door says to a writer whose lease another took: 409 with the lease as it stands, and a trace in the book."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ingest.problems import Problem
from ingest.reply import Reply
from journal import entries
from sessions import beats, fences, holders
from sessions.fences import Stale
from sessions.models_leases import Lease
from sessions.origin import Origin, Repeated


def check(origin: Origin, session: UUID, kind: str, task: UUID | None = None) -> Reply | None:
    """A refusal where the command comes under another epoch than stands; the session's row must be locked.

    Raises Repeated where this very command was done already, under whatever epoch stood then.
    """
    stale = fences.check(origin.project, session, origin.lease_epoch, task)
    if stale is None:
        return None
    if entries.look(origin.draft(kind), origin.received_us) is not None:
        raise Repeated
    fences.refuse(origin, session, stale, kind=kind, subject=task)
    return refused(standing(origin.project, session, task), stale)


def refused(lease: Lease | None, stale: Stale | None = None, **more: Any) -> Reply:
    """409 LEASE_LOST, with the lease."""
    body = Problem(409, "LEASE_LOST", fences.LOST if stale is None else stale.sentence).as_dict() | more
    return Reply(409, body if lease is None else body | {"lease": describe(lease)}, kept=False)


Fact = tuple[Origin, str, UUID, UUID | None, int | None, UUID | None]


def mark(facts: Sequence[Fact]) -> None:
    """Say of facts that were reported and kept which a fenced writer sent; the others move their sessions' work.

    A fact is (origin, kind, session, effect, attempt, task), and names an epoch.
    """
    if not facts:
        return
    held = Lease.objects.filter(session__in={fact[2] for fact in facts})
    present = {lease.task_id or lease.session_id: lease.epoch for lease in held}
    drafts, moving = [], {}
    for origin, kind, session, effect, attempt, task in facts:
        epoch, given = present.get(task, present.get(session)), origin.lease_epoch
        if epoch is not None and given is not None and given < epoch:
            stale = Stale(given, epoch)
            drafts.append(
                fences.fenced(
                    origin, session, stale, kept=True, effect=effect, attempt=attempt, subject=task, kind=kind
                )
            )
        elif epoch is not None and origin.lane != "claim" and (kind in beats.MOVING or kind.startswith("effect.")):
            moving[session, task] = origin
    if drafts:
        entries.append(drafts, facts[0][0].received_us)
    for (session, task), origin in sorted(moving.items(), key=lambda one: str(one[0])):
        beats.progressed(origin.project, session, task=task)


def standing(project: UUID, session: UUID, task: UUID | None = None) -> Lease | None:
    """The lease by which writes in a session, or about a task of it, are fenced."""
    named = [fences.lease_id(project, "session", str(session))]
    if task is not None:
        named.append(fences.lease_id(project, "task", str(task)))
    found = {lease.kind: lease for lease in holders.read().filter(id__in=named)}
    return found.get("task") or found.get("session")


def describe(lease: Lease) -> dict[str, Any]:
    """A lease in an answer; its times are the database's."""
    return holders.told(lease, lease.now_us)
