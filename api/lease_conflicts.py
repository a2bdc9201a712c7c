"""409 LEASE_LOST: rejects writers whose lease was taken over."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from api.problems import Problem
from api.reply import Reply
from api.serializers.leases import lease_to_json
from journal import entries
from journal.entries import Origin, RepeatedKey
from sessions import fencing, heartbeats, lease_queries
from sessions.fencing import StaleEpoch
from sessions.models import Lease


def check_lease_epoch(
    origin: Origin, session: UUID, kind: str, task: UUID | None = None
) -> Reply | None:
    """Return a refusal if the command's lease epoch is not current; else None.

    The session's row must be locked. Raises RepeatedKey if the command ran before, under any epoch.
    """
    stale = fencing.check_epoch(origin.project, session, origin.lease_epoch, task)
    if stale is None:
        return None
    if entries.compare_with_stored(origin.draft(kind), origin.received_us) is not None:
        raise RepeatedKey
    fencing.record_fenced_command(origin, session, stale, kind=kind, subject=task)
    return build_lease_lost(load_fencing_lease(origin.project, session, task), stale)


def build_lease_lost(lease: Lease | None, stale: StaleEpoch | None = None, **more: Any) -> Reply:
    """Build a 409 LEASE_LOST with the current lease."""
    body = (
        Problem(
            409, "LEASE_LOST", fencing.LEASE_LOST_TEXT if stale is None else stale.sentence
        ).as_dict()
        | more
    )
    return Reply(409, body if lease is None else body | {"lease": lease_to_json(lease)}, kept=False)


FencedFact = tuple[Origin, str, UUID, UUID | None, int | None, UUID | None]


def record_fenced_facts(facts: Sequence[FencedFact]) -> None:
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
            stale = StaleEpoch(sent_epoch, epoch)
            drafts.append(
                fencing.build_fenced_entry(
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
            and (kind in heartbeats.PROGRESS_KINDS or kind.startswith("effect."))
        ):
            moving[session, task] = origin
    if drafts:
        entries.append_entries(drafts, facts[0][0].received_us)
    for (session, task), origin in sorted(moving.items(), key=lambda move: str(move[0])):
        heartbeats.record_progress(origin.project, session, task=task)


def load_fencing_lease(project: UUID, session: UUID, task: UUID | None = None) -> Lease | None:
    """Return the lease that fences writes in a session or about one of its tasks."""
    lease_ids = [fencing.derive_lease_id(project, "session", str(session))]
    if task is not None:
        lease_ids.append(fencing.derive_lease_id(project, "task", str(task)))
    leases = {lease.kind: lease for lease in lease_queries.query_leases().filter(id__in=lease_ids)}
    return leases.get("task") or leases.get("session")
