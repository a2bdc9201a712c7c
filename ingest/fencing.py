"""409 LEASE_LOST: rejects writers whose lease was taken over."""

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
    """Return a refusal if the command's lease epoch is not current; else None.

    The session's row must be locked. Raises Repeated if the command ran before, under any epoch.
    """
    stale = fences.check(origin.project, session, origin.lease_epoch, task)
    if stale is None:
        return None
    if entries.look(origin.draft(kind), origin.received_us) is not None:
        raise Repeated
    fences.refuse(origin, session, stale, kind=kind, subject=task)
    return refused(standing(origin.project, session, task), stale)


def refused(lease: Lease | None, stale: Stale | None = None, **more: Any) -> Reply:
    """Build a 409 LEASE_LOST with the current lease."""
    body = (
        Problem(409, "LEASE_LOST", fences.LOST if stale is None else stale.sentence).as_dict()
        | more
    )
    return Reply(409, body if lease is None else body | {"lease": describe(lease)}, kept=False)


Fact = tuple[Origin, str, UUID, UUID | None, int | None, UUID | None]


def mark(facts: Sequence[Fact]) -> None:
    """Record which facts came from a fenced writer; others count as progress.

    A fact is (origin, kind, session, effect, attempt, task); its origin has a lease epoch.
    """
    if not facts:
        return
    leases = Lease.objects.filter(session__in={fact[2] for fact in facts})
    current_epochs = {lease.task_id or lease.session_id: lease.epoch for lease in leases}
    drafts, moving = [], {}
    for origin, kind, session, effect, attempt, task in facts:
        epoch, sent_epoch = (
            current_epochs.get(task, current_epochs.get(session)),
            origin.lease_epoch,
        )
        if epoch is not None and sent_epoch is not None and sent_epoch < epoch:
            stale = Stale(sent_epoch, epoch)
            drafts.append(
                fences.fenced(
                    origin,
                    session,
                    stale,
                    kept=True,
                    effect=effect,
                    attempt=attempt,
                    subject=task,
                    kind=kind,
                )
            )
        elif (
            epoch is not None
            and origin.lane != "claim"
            and (kind in beats.MOVING or kind.startswith("effect."))
        ):
            moving[session, task] = origin
    if drafts:
        entries.append(drafts, facts[0][0].received_us)
    for (session, task), origin in sorted(moving.items(), key=lambda move: str(move[0])):
        beats.progressed(origin.project, session, task=task)


def standing(project: UUID, session: UUID, task: UUID | None = None) -> Lease | None:
    """Return the lease that fences writes in a session or about one of its tasks."""
    lease_ids = [fences.lease_id(project, "session", str(session))]
    if task is not None:
        lease_ids.append(fences.lease_id(project, "task", str(task)))
    leases = {lease.kind: lease for lease in holders.read().filter(id__in=lease_ids)}
    return leases.get("task") or leases.get("session")


def describe(lease: Lease) -> dict[str, Any]:
    """Serialize a lease. Its times are from the database clock."""
    return holders.told(lease, lease.now_us)
