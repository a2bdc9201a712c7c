"""The one writer of Lease: acquire, renew, release and take over leases.

The database's clock and one row's lock decide: the statement that writes also compares. A holder
that loses a lease learns so from the epoch, since a write under a lower epoch is rejected.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import BigIntegerField, F, Q, Value
from django.db.models.functions import Least

from accounts.people import ensure_pseudonym
from db import clock, raw_sql
from db.clock import now_us
from db.fields import DatabaseNow
from db.raw_sql import read_uuid, vendor_id
from db.row_changes import RowChange, write_row_changes
from journal import entries
from journal.entries import SYSTEM_SOURCE, AppendResult, AppendStatus, Draft, Origin, RepeatedKey
from sessions import sessions
from sessions.lease_queries import (
    DEAD_AFTER_TTLS,
    DEFAULT_TTL_S,
    PROGRESS_WITHIN_S,
    US,
    AppliedHeartbeat,
    Heartbeat,
    LeaseHeld,
    LeaseLost,
    LeaseSubject,
    is_lease_live,
    load_lease,
    query_leases,
)
from sessions.models import Lease
from sessions.writers import NO_ID, LeaseTakenConcurrently


def acquire_or_renew_lease(
    origin: Origin,
    subject: LeaseSubject,
    *,
    process: str,
    ttl_s: int = DEFAULT_TTL_S,
    takeover: bool = False,
) -> tuple[Lease, bool]:
    """Acquire the lease on `subject` for `process`; return it, and whether it is new.

    An expired or released lease is taken over freely. A live lease is taken over only with
    `takeover`, and only from the same agent. Where the subject is a session, its row must be
    locked.

    Raises LeaseHeld; RepeatedKey; LeaseLost when this same command acquired the lease before and
    the lease is gone since.
    """
    identity = subject.identity(origin.project)
    before = _lock_lease(identity)
    draft = origin.draft("lease.acquired", session=subject.session, subject=identity)
    earlier = entries.compare_with_stored(draft, origin.received_us)
    if earlier is not None:
        return _load_acquired_lease(origin, before, earlier, process), False
    if before is None:
        return _insert_lease(origin, subject, process, ttl_s), True
    is_renewal = before.agent_id == origin.agent and before.process == process
    if is_renewal and before.released_at_us is None:
        set_lease_ttl(origin.project, origin.agent, identity, before.epoch, ttl_s)
        record_silence_ends(
            origin.project,
            apply_heartbeats(origin.project, origin.agent, [Heartbeat(identity, before.epoch)]),
            origin.received_us,
        )
        return query_leases().get(id=identity), False
    free = Q(released_at_us__isnull=False) | Q(expires_at_us__lte=DatabaseNow())
    if takeover:
        free |= Q(agent=origin.agent)
    updated = Lease.objects.filter(free, id=identity, epoch=before.epoch).update(
        **_new_holder_columns(origin, process, ttl_s),
        epoch=F("epoch") + 1,
        takeovers=F("takeovers") + 1,
        version=F("version") + 1,
    )
    if not updated:
        raise LeaseHeld(before)
    if before.released_at_us is None:
        reason = "takeover" if is_lease_live(before, origin.received_us) else "expired"
        _append_entry("lease.lost", before, origin.received_us, {"why": reason})
    return _record_acquisition(origin, subject, before), True


def _load_acquired_lease(
    origin: Origin, lease: Lease | None, acquisition: AppendResult, process: str
) -> Lease:
    """Return the lease that a repeated command acquired the first time.

    Checks the stored row, which another holder may own by now. Raises RepeatedKey, LeaseLost.
    """
    if acquisition.status is AppendStatus.CONFLICT or lease is None:
        raise RepeatedKey
    is_unchanged = (lease.opened_position, lease.process, lease.released_at_us) == (
        acquisition.position,
        process,
        None,
    )
    if not is_unchanged or lease.agent_id != origin.agent:
        raise LeaseLost(lease)
    return lease


def _insert_lease(origin: Origin, subject: LeaseSubject, process: str, ttl_s: int) -> Lease:
    """Store the first lease on `subject`.

    Raises LeaseTakenConcurrently where another transaction stored one first: the endpoint runs the
    command again.
    """
    identity = subject.identity(origin.project)
    now = clock.NOW_SQL[connection.vendor]
    stored = raw_sql.execute_write(
        _INSERT.format(now=now),
        [
            vendor_id(identity),
            vendor_id(origin.project),
            subject.kind,
            subject.name,
            None if subject.session is None else vendor_id(subject.session),
            None if subject.task is None else vendor_id(subject.task),
            vendor_id(origin.agent),
            process,
            ttl_s,
            ttl_s * US,
            DEAD_AFTER_TTLS * ttl_s * US,
            PROGRESS_WITHIN_S * US,
        ],
    )
    if not stored:
        raise LeaseTakenConcurrently
    return _record_acquisition(origin, subject, None)


_INSERT: Final = """INSERT INTO agent_sessions_lease (
  id, project_id, kind, subject, session_id, task_id, agent_id, process, epoch, ttl_s,
  acquired_at_us, heartbeat_at_us, progress_at_us, progress_token, expires_at_us, dead_at_us,
  wedged_at_us, takeovers, version, opened_position)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 1, %s,
  {now}, {now}, {now}, '', {now} + %s, {now} + %s, {now} + %s, 0, 1, 0)
ON CONFLICT DO NOTHING"""


def _new_holder_columns(origin: Origin, process: str, ttl_s: int) -> dict[str, Any]:
    """Return the columns of a lease that begins now."""
    now = DatabaseNow()
    return {
        "agent_id": origin.agent,
        "process": process,
        "ttl_s": ttl_s,
        "acquired_at_us": now,
        "heartbeat_at_us": now,
        "progress_at_us": now,
        "progress_token": "",
        "quiet_until_us": None,
        "expires_at_us": now + _microseconds(ttl_s),
        "dead_at_us": now + _microseconds(DEAD_AFTER_TTLS * ttl_s),
        "wedged_at_us": now + _microseconds(PROGRESS_WITHIN_S),
        "released_at_us": None,
        "silent_since_us": None,
    }


def _microseconds(seconds: int) -> Value:
    """Return seconds as 64-bit microseconds.

    Django sends a plain number as 32 bits, which PostgreSQL truncates.
    """
    return Value(seconds * US, output_field=BigIntegerField())


def _record_acquisition(origin: Origin, subject: LeaseSubject, before: Lease | None) -> Lease:
    """Journal an acquisition, raise the session's fence, and set the lease's handle."""
    lease = query_leases().get(id=subject.identity(origin.project))
    facts = {
        "epoch": lease.epoch,
        "kind": lease.kind,
        "ttl_s": lease.ttl_s,
        "expires_at_us": lease.expires_at_us,
    }
    draft = origin.draft(
        "lease.acquired",
        facts=entries.dump_sorted_json(facts),
        session=subject.session,
        subject=lease.id,
    )
    draft.lease_epoch = lease.epoch
    appended = entries.append_entries([draft], origin.received_us)[0]
    if appended.status is not AppendStatus.CREATED:
        raise LeaseTakenConcurrently  # the same command ran concurrently; the retry finds its lease
    lease.opened_position = appended.position
    lease.save(update_fields=["opened_position"])
    if lease.kind == "session" and lease.session_id is not None:
        resumed = sessions.fence_session(lease.session_id, lease.epoch, again=before is not None)
        if resumed:
            _append_entry(
                "session.resumed", lease, origin.received_us, {"takeovers": lease.takeovers}
            )
    return lease


def release_own_lease(origin: Origin, lease: UUID, epoch: int) -> Lease:
    """Release a lease by command.

    Raises LeaseLost when the caller no longer holds it, LookupError when it does not exist,
    RepeatedKey.
    """
    row = load_lease(origin.project, lease)
    if entries.compare_with_stored(
        origin.draft("lease.released", session=row.session_id, subject=row.id), origin.received_us
    ):
        raise RepeatedKey
    released = Lease.objects.filter(
        id=lease, epoch=epoch, agent=origin.agent, released_at_us__isnull=True
    ).update(released_at_us=DatabaseNow(), silent_since_us=None, version=F("version") + 1)
    if not released:
        raise LeaseLost(row)
    draft = origin.draft(
        "lease.released",
        facts=entries.dump_sorted_json({"epoch": epoch}),
        session=row.session_id,
        subject=row.id,
    )
    draft.lease_epoch = epoch
    origin.append_draft(draft)
    if row.kind == "session" and row.session_id is not None:
        # Every write is fenced until the lease is acquired again.
        sessions.fence_released_session(row.session_id, epoch + 1, origin.received_us)
    return query_leases().get(id=lease)


def release_lease_for_person(
    project: UUID, session: UUID, epoch: int, reason: str, user: User
) -> bool:
    """Release a session's lease for a person; False when its epoch has changed.

    The holder is fenced from now on, dead or not. The lease also counts as expired, because the
    holder did not release it: the next claim may get the session, and its worker must expect
    effects that it does not know.
    """
    now = now_us()
    sessions.lock_session_row(project, session, now, new_effects=0)
    rows = Lease.objects.select_for_update(no_key=True).filter(
        project=project, kind="session", session=session
    )
    row = rows.first()
    if row is None or (row.epoch, row.released_at_us) != (epoch, None):
        return False
    Lease.objects.filter(id=row.id).update(
        released_at_us=DatabaseNow(),
        expires_at_us=Least(F("expires_at_us"), DatabaseNow()),
        silent_since_us=None,
        version=F("version") + 1,
    )
    draft = _build_entry("lease.released", row, {"why": "person"}, row.epoch)
    draft.actor = ensure_pseudonym(user)
    draft.text = entries.dump_sorted_json(
        {"kind": draft.kind, "lease": row.id, "epoch": epoch, "reason": reason}
    )
    entries.append_entries([draft], now)
    sessions.fence_released_session(session, epoch + 1, now)
    return True


def release_session_leases(session: UUID, received_us: int) -> None:
    """Release all leases in a session that has ended, so that silence raises no alert.

    The fence stays: attempts made under the last epoch can still be acknowledged.
    """
    open_leases = Lease.objects.filter(session=session, released_at_us=None)
    for lease in open_leases.select_for_update(no_key=True).order_by("id"):
        Lease.objects.filter(id=lease.id).update(released_at_us=DatabaseNow(), silent_since_us=None)
        _append_entry("lease.released", lease, received_us, {"why": "session_ended"})


def set_lease_ttl(project: UUID, agent: UUID, lease: UUID, epoch: int, ttl_s: int) -> None:
    """Change a lease's TTL from its next heartbeat on, if the caller still holds it."""
    Lease.objects.filter(
        id=lease, project=project, agent=agent, epoch=epoch, released_at_us=None
    ).update(ttl_s=ttl_s)


_SELECT_HELD: Final = """SELECT id, epoch, session_id, silent_since_us, progress_token
FROM agent_sessions_lease
WHERE project_id = %s AND agent_id = %s AND released_at_us IS NULL AND id {among}"""
_AMONG: Final = {
    "postgresql": "= ANY (%s::uuid[]) ORDER BY id FOR NO KEY UPDATE",
    "sqlite": "IN (SELECT value FROM json_each(%s))",
}
_GIVEN: Final = {
    "postgresql": "json_to_recordset(%s::json)"
    " AS given(id uuid, epoch bigint, moved boolean, token text, quiet bigint)",
    "sqlite": """(SELECT value ->> 'id' AS id, value ->> 'epoch' AS epoch,
  value ->> 'moved' AS moved, value ->> 'token' AS token, value ->> 'quiet' AS quiet
  FROM json_each(%s)) AS given""",
}
_MOST: Final = {"postgresql": "GREATEST", "sqlite": "MAX"}
_QUIET: Final = (
    "CASE WHEN given.quiet IS NULL THEN quiet_until_us"
    f" WHEN given.quiet > 0 THEN {{now}} + given.quiet * {US} END"
)
_HEARTBEAT: Final = f"""UPDATE agent_sessions_lease SET
  heartbeat_at_us = {{now}}, silent_since_us = NULL, quiet_until_us = {{quiet}},
  expires_at_us = {{most}}({{now}} + ttl_s * {US}, COALESCE({{quiet}}, 0)),
  dead_at_us = {{most}}({{now}} + {DEAD_AFTER_TTLS} * ttl_s * {US}, COALESCE({{quiet}}, 0)),
  progress_token = CASE WHEN given.moved THEN given.token ELSE progress_token END,
  progress_at_us = CASE WHEN given.moved THEN {{now}} ELSE progress_at_us END,
  wedged_at_us = {{most}}(
    CASE WHEN given.moved THEN {{now}} ELSE progress_at_us END + {PROGRESS_WITHIN_S * US},
    COALESCE({{quiet}}, 0))
FROM {{given}} WHERE agent_sessions_lease.id = given.id AND agent_sessions_lease.epoch = given.epoch
  AND released_at_us IS NULL RETURNING agent_sessions_lease.id, heartbeat_at_us, expires_at_us"""


def apply_heartbeats(
    project: UUID, agent: UUID, heartbeats: Sequence[Heartbeat]
) -> list[AppliedHeartbeat]:
    """Apply heartbeats to the deadlines of their leases, in two statements.

    Heartbeats on leases that the agent does not hold are left out of the result. Rows are locked in
    the order of their ids.
    """
    vendor = connection.vendor
    named = list({heartbeat.lease for heartbeat in heartbeats})
    among: Any = (
        named
        if vendor == "postgresql"
        else orjson.dumps([lease_id.hex for lease_id in named]).decode()
    )
    rows = raw_sql.fetch_rows(
        _SELECT_HELD.format(among=_AMONG[vendor]), [vendor_id(project), vendor_id(agent), among]
    )
    stored = {read_uuid(row[0]): row for row in rows}
    given: dict[UUID, dict[str, Any]] = {}
    for heartbeat in heartbeats:
        row = stored.get(heartbeat.lease)
        if row is None or row[1] != heartbeat.epoch:
            continue
        changes = given.setdefault(
            heartbeat.lease,
            {"id": vendor_id(heartbeat.lease), "epoch": heartbeat.epoch, "moved": False},
        )
        if heartbeat.progress is not None and heartbeat.progress != row[4]:
            changes |= {"moved": True, "token": heartbeat.progress}
        if heartbeat.quiet_s is not None:
            changes["quiet"] = heartbeat.quiet_s
    if not given:
        return []
    now = clock.NOW_SQL[vendor]
    text = _HEARTBEAT.format(
        now=now, most=_MOST[vendor], given=_GIVEN[vendor], quiet=_QUIET.format(now=now)
    )
    applied = []
    for identity, heartbeat_at_us, expires_at_us in raw_sql.fetch_rows(
        text, [orjson.dumps(list(given.values())).decode()]
    ):
        lease = read_uuid(identity)
        _, epoch, session, silent, _ = stored[lease]
        silence = None if silent is None else heartbeat_at_us - silent
        applied.append(
            AppliedHeartbeat(
                lease,
                None if session is None else read_uuid(session),
                epoch,
                heartbeat_at_us,
                expires_at_us,
                given[lease]["moved"],
                silence,
            )
        )
    return applied


_PROGRESS: Final = f"""UPDATE agent_sessions_lease SET progress_at_us = {{now}}, wedged_at_us =
  {{most}}({{now}} + {PROGRESS_WITHIN_S * US}, COALESCE(quiet_until_us, 0))
WHERE id IN (SELECT id FROM agent_sessions_lease WHERE session_id = %s AND released_at_us IS NULL
  AND (kind = 'session' OR task_id = %s){{lock}}) RETURNING id, kind, epoch, progress_at_us"""


def record_lease_progress(session: UUID, task: UUID | None) -> list[tuple[UUID, str, int, int]]:
    """Record progress on the leases; return (lease, kind, epoch, now) of each."""
    vendor = connection.vendor
    lock = " ORDER BY id FOR NO KEY UPDATE" if vendor == "postgresql" else ""
    text = _PROGRESS.format(now=clock.NOW_SQL[vendor], most=_MOST[vendor], lock=lock)
    moved = raw_sql.fetch_rows(text, [vendor_id(session), vendor_id(task or NO_ID)])
    return [(read_uuid(lease), kind, epoch, now) for lease, kind, epoch, now in moved]


def record_silent_holders(most: int, received_us: int) -> int:
    """Journal the holders of sessions that are silent since their leases expired.

    Returns how many.

    Each silence is journalled once. A heartbeat, a takeover or a release ends it.
    """
    overdue = Lease.objects.select_for_update(
        no_key=True, skip_locked=connection.vendor == "postgresql"
    ).filter(
        kind="session", released_at_us=None, silent_since_us=None, expires_at_us__lt=DatabaseNow()
    )
    silent = list(overdue.order_by("expires_at_us")[:most])
    Lease.objects.filter(id__in=[lease.id for lease in silent]).update(
        silent_since_us=F("heartbeat_at_us")
    )
    drafts = [
        _build_entry(
            "session.silent", lease, {"since_us": lease.heartbeat_at_us}, lease.heartbeat_at_us
        )
        for lease in silent
    ]
    entries.append_entries(drafts, received_us)
    return len(silent)


def record_silence_ends(
    project: UUID, applied_heartbeats: Sequence[AppliedHeartbeat], received_us: int
) -> None:
    """Journal the ends of silences."""
    ended = [heartbeat for heartbeat in applied_heartbeats if heartbeat.silent_us is not None]
    if not ended:
        return
    rows = {
        lease.id: lease
        for lease in Lease.objects.filter(
            project=project, id__in=[heartbeat.lease for heartbeat in ended]
        )
    }
    drafts = [
        _build_entry(
            "session.silence_ended",
            rows[heartbeat.lease],
            {"silent_us": heartbeat.silent_us},
            heartbeat.at_us,
        )
        for heartbeat in ended
    ]
    entries.append_entries(drafts, received_us)


def restore_leases(changes: Sequence[RowChange]) -> None:
    """Restore leases to what the journal gives (manage.py rebuild)."""
    write_row_changes(Lease, changes)


def _lock_lease(lease: UUID) -> Lease | None:
    return query_leases().select_for_update(no_key=True, of=("self",)).filter(id=lease).first()


def _append_entry(kind: str, lease: Lease, received_us: int, facts: dict[str, Any]) -> None:
    entries.append_entries([_build_entry(kind, lease, facts, lease.epoch)], received_us)


def _build_entry(kind: str, lease: Lease, facts: dict[str, Any], discriminator: int) -> Draft:
    """Build a system entry about a lease and its epoch.

    `discriminator` distinguishes the entry from others of its kind.
    """
    text = entries.dump_sorted_json(
        {"kind": kind, "lease": lease.id, "epoch": lease.epoch, **facts}
    )
    return Draft(
        project=lease.project_id,
        source=SYSTEM_SOURCE,
        event_id=entries.keyed_digest(kind, str(lease.id), str(lease.epoch), str(discriminator)),
        kind=kind,
        lane="system",
        actor=SYSTEM_SOURCE,
        text=text,
        facts=entries.dump_sorted_json({"epoch": lease.epoch, **facts}),
        session=lease.session_id,
        subject=lease.id,
        lease_epoch=lease.epoch,
    )
