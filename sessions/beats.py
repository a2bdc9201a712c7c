"""The one writer of BeatMinute: hears that holders are alive and that work moves, two clocks that are never mixed.

A beat says that a process runs. Progress is what cannot be said by a process that merely runs: a checkpoint, a
decision, a task that changed, a mark of an effect, or a progress token that is another than before.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import orjson
from django.db import connection

from journal import entries, sql
from journal.clock import now_us
from journal.entries import SYSTEM_SOURCE, Draft
from journal.sql import vendor_id
from sessions import leases
from sessions.fences import Overtaken, as_text
from sessions.holders import Beat, Heard
from sessions.models_leases import BeatMinute, Lease

# What a session is seen to move by, beside new progress tokens and the marks of its effects.
MOVING: Final = frozenset(
    {
        *("checkpoint.written", "decision.recorded", "decision.concluded"),
        *("task.created", "task.changed", "task.done", "item.done", "item.failed"),
    }
)
KEPT_MINUTES: Final = 7 * 24 * 60
_MINUTE_US: Final = 60_000_000
_COUNTED: Final = """ ON CONFLICT (lease_id, minute) DO UPDATE SET
  beats = agent_sessions_beatminute.beats + excluded.beats,
  progresses = agent_sessions_beatminute.progresses + excluded.progresses"""
_COUNT: Final = {
    "postgresql": "INSERT INTO agent_sessions_beatminute (lease_id, minute, beats, progresses)"
    " SELECT lease, minute, beats, progresses FROM json_to_recordset(%s::json)"
    f" AS given(lease uuid, minute int, beats int, progresses int) ORDER BY lease{_COUNTED}",
    "sqlite": "INSERT INTO agent_sessions_beatminute (lease_id, minute, beats, progresses)"
    " SELECT value ->> 'lease', value ->> 'minute', value ->> 'beats', value ->> 'progresses'"
    f" FROM json_each(%s) WHERE TRUE{_COUNTED}",
}


def beat(project: UUID, agent: UUID, beats: Sequence[Beat], received_us: int) -> dict[tuple[UUID, int], Heard]:
    """Hear the holders of leases: what counted, by lease and epoch; what is missing there is lost.

    A constant number of statements, however many there are; the entries that end a silence are the exception.
    """
    heard = leases.hear(project, agent, beats)
    _count((one.lease, one.at_us, 1, int(one.progressed)) for one in heard)
    leases.tell_heard(project, heard, received_us)
    return {(one.lease, one.epoch): one for one in heard}


def tell_lost(project: UUID, agent: UUID, lost: Sequence[tuple[UUID, int]], received_us: int) -> None:
    """Write into the book that a holder beats on whose lease another took: once for each (lease, epoch)."""
    if not lost:
        return
    rows = {lease.id: lease for lease in Lease.objects.filter(project=project, id__in=[lease for lease, _ in lost])}
    found = [(rows[lease], epoch) for lease, epoch in lost if lease in rows and epoch < rows[lease].epoch]
    entries.append([_still_beating(lease, epoch, agent) for lease, epoch in found], received_us)


def _still_beating(lease: Lease, epoch: int, agent: UUID) -> Draft:
    facts = {"given": epoch, "present": lease.epoch, "kept": False, "kind": "lease.beat"}
    return Draft(
        project=lease.project_id,
        source=SYSTEM_SOURCE,
        event_id=entries.keyed_digest("beat", str(lease.id), str(epoch), agent.hex),
        kind="integrity.fenced",
        lane="system",
        actor=f"agent:{agent.hex}",
        text=as_text({"lease": lease.id, "epoch": epoch}),
        facts=as_text(facts),
        session=lease.session_id,
        subject=lease.id,
        lease_epoch=epoch,
    )


def progressed(project: UUID, session: UUID, given: int | None = None, task: UUID | None = None) -> None:
    """Say that work moved in a session, and in a task where the fact names one; nothing where nothing is leased.

    The last statements of a verb whose session has a fence: they wait for whoever takes the lease over. Raises
    Overtaken when `given` is no longer the epoch of whoever holds what the fact is of.
    """
    moved = leases.move(session, task)
    holding = {kind: epoch for _, kind, epoch, _ in moved}
    present = holding.get("task", holding.get("session"))
    if given is not None and present is not None and present != given:
        raise Overtaken
    _count((lease, at_us, 0, 1) for lease, _, _, at_us in moved)


def _count(of: Iterable[tuple[UUID, int, int, int]]) -> None:
    """Add to the density of leases: (lease, moment, beats, progresses)."""
    rows: list[dict[str, Any]] = [
        {"lease": vendor_id(lease), "minute": at_us // _MINUTE_US, "beats": beats, "progresses": progresses}
        for lease, at_us, beats, progresses in of
    ]
    if rows:
        sql.write(_COUNT[connection.vendor], [orjson.dumps(rows).decode()])


def prune(keep_minutes: int = KEPT_MINUTES) -> int:
    """Delete what is told of minutes longer ago, in short steps, and return how many rows that were."""
    deleted = 0
    while True:
        old = BeatMinute.objects.filter(minute__lt=now_us() // _MINUTE_US - keep_minutes)
        oldest = list(old.order_by("minute").values_list("id", flat=True)[:1000])
        if not oldest:
            return deleted
        deleted += BeatMinute.objects.filter(id__in=oldest).delete()[0]
