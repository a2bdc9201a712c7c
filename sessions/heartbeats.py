"""The one writer of HeartbeatMinute: counts heartbeats and progress, which never mix.

A heartbeat shows that a process runs. Progress is what a process that merely runs cannot report: a
checkpoint, a decision, a changed task, a change of an effect, or a new progress token.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import orjson
from django.db import connection

from db import raw_sql
from db.clock import now_us
from db.raw_sql import vendor_id
from journal import entries
from journal.entries import SYSTEM_SOURCE, Draft
from sessions import leases
from sessions.lease_queries import AppliedHeartbeat, Heartbeat
from sessions.models import HeartbeatMinute, Lease
from sessions.writers import LeaseTakenConcurrently

# Facts that count as progress, besides new progress tokens and changes of effects.
PROGRESS_KINDS: Final = frozenset(
    {
        "checkpoint.written",
        "decision.recorded",
        "decision.concluded",
        "task.created",
        "task.changed",
        "task.done",
        "item.done",
        "item.failed",
    }
)
KEPT_MINUTES: Final = 7 * 24 * 60
_MINUTE_US: Final = 60_000_000
_COUNTED: Final = """ ON CONFLICT (lease_id, minute) DO UPDATE SET
  heartbeats = agent_sessions_heartbeatminute.heartbeats + excluded.heartbeats,
  progresses = agent_sessions_heartbeatminute.progresses + excluded.progresses"""
_COUNT: Final = {
    "postgresql": "INSERT INTO agent_sessions_heartbeatminute"
    " (lease_id, minute, heartbeats, progresses)"
    " SELECT lease, minute, heartbeats, progresses FROM json_to_recordset(%s::json)"
    " AS given(lease uuid, minute int, heartbeats int, progresses int)"
    f" ORDER BY lease{_COUNTED}",
    "sqlite": "INSERT INTO agent_sessions_heartbeatminute"
    " (lease_id, minute, heartbeats, progresses)"
    " SELECT value ->> 'lease', value ->> 'minute', value ->> 'heartbeats',"
    " value ->> 'progresses'"
    f" FROM json_each(%s) WHERE TRUE{_COUNTED}",
}


def record_heartbeats(
    project: UUID, agent: UUID, heartbeats: Sequence[Heartbeat], received_us: int
) -> dict[tuple[UUID, int], AppliedHeartbeat]:
    """Record heartbeats; return those that counted, by lease and epoch.

    Leases missing from the result are lost.

    Runs a constant number of statements for any number of heartbeats, plus the entries that end a
    silence.
    """
    applied_heartbeats = leases.apply_heartbeats(project, agent, heartbeats)
    _add_counts(
        (applied.lease, applied.at_us, 1, int(applied.progressed)) for applied in applied_heartbeats
    )
    leases.record_silence_ends(project, applied_heartbeats, received_us)
    return {(applied.lease, applied.epoch): applied for applied in applied_heartbeats}


def record_lost_heartbeats(
    project: UUID, agent: UUID, lost: Sequence[tuple[UUID, int]], received_us: int
) -> None:
    """Journal heartbeats on a lost lease, once per (lease, epoch)."""
    if not lost:
        return
    rows = {
        lease.id: lease
        for lease in Lease.objects.filter(project=project, id__in=[lease for lease, _ in lost])
    }
    overtaken = [
        (rows[lease], epoch) for lease, epoch in lost if lease in rows and epoch < rows[lease].epoch
    ]
    entries.append_entries(
        [_build_lost_heartbeat(lease, epoch, agent) for lease, epoch in overtaken], received_us
    )


def _build_lost_heartbeat(lease: Lease, epoch: int, agent: UUID) -> Draft:
    facts = {"given": epoch, "present": lease.epoch, "kept": False, "kind": "lease.heartbeat"}
    return Draft(
        project=lease.project_id,
        source=SYSTEM_SOURCE,
        event_id=entries.keyed_digest("heartbeat", str(lease.id), str(epoch), agent.hex),
        kind="integrity.fenced",
        lane="system",
        actor=f"agent:{agent.hex}",
        text=entries.dump_sorted_json({"lease": lease.id, "epoch": epoch}),
        facts=entries.dump_sorted_json(facts),
        session=lease.session_id,
        subject=lease.id,
        lease_epoch=epoch,
    )


def record_progress(
    project: UUID, session: UUID, given: int | None = None, task: UUID | None = None
) -> None:
    """Record progress of a session, and of a task if given; nothing without a lease.

    These are the last statements of a command on a fenced session: they wait for a concurrent
    takeover. Raises LeaseTakenConcurrently when `given` is no longer the current epoch.
    """
    moved = leases.record_lease_progress(session, task)
    holding = {kind: epoch for _, kind, epoch, _ in moved}
    present = holding.get("task", holding.get("session"))
    if given is not None and present is not None and present != given:
        raise LeaseTakenConcurrently
    _add_counts((lease, at_us, 0, 1) for lease, _, _, at_us in moved)


def _add_counts(counts: Iterable[tuple[UUID, int, int, int]]) -> None:
    """Add to the per-minute counts of leases: (lease, time, heartbeats, progress)."""
    rows: list[dict[str, Any]] = [
        {
            "lease": vendor_id(lease),
            "minute": at_us // _MINUTE_US,
            "heartbeats": heartbeats,
            "progresses": progresses,
        }
        for lease, at_us, heartbeats, progresses in counts
    ]
    if rows:
        raw_sql.execute_write(_COUNT[connection.vendor], [orjson.dumps(rows).decode()])


def prune_heartbeat_minutes(keep_minutes: int = KEPT_MINUTES) -> int:
    """Delete counts older than `keep_minutes`, in short steps; return how many rows."""
    deleted = 0
    while True:
        old = HeartbeatMinute.objects.filter(minute__lt=now_us() // _MINUTE_US - keep_minutes)
        oldest = list(old.order_by("minute").values_list("id", flat=True)[:1000])
        if not oldest:
            return deleted
        deleted += HeartbeatMinute.objects.filter(id__in=oldest).delete()[0]
