"""The one writer of Lease: taken, renewed, given up and taken over, by the database's clock and one row's lock.

Whoever loses a lease learns it from the epoch: a lower one than the present is a stranger's. Nothing here asks the
clock of the process; what decides is compared in the statement that writes.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import BigIntegerField, F, Q, Value
from django.db.models.functions import Least

from journal import clock, entries, sql
from journal.clock import now_us
from journal.entries import SYSTEM_SOURCE, Appended, Draft, Status
from journal.fields import DatabaseNow
from journal.sql import vendor_id
from sessions import sessions
from sessions.fences import NOTHING, Overtaken, as_text
from sessions.holders import DEAD_AFTER_TTLS, PROGRESS_WITHIN_S, TTL_S, US, Beat, Heard, Held, Lost, Subject, of_project
from sessions.holders import is_live as is_live
from sessions.holders import read as read
from sessions.models_leases import Lease
from sessions.origin import Origin, Repeated
from sessions.people import pseudonym_of


def acquire(
    origin: Origin, subject: Subject, *, process: str, ttl_s: int = TTL_S, takeover: bool = False
) -> tuple[Lease, bool]:
    """Take the lease on `subject` for `process`. Returns it, and whether it is new to this holder.

    What expired or was released is taken over without asking. One that is live is taken only with `takeover`, from the
    same agent. The session's row must be locked where the subject is a session. Raises Held; Lost when this very
    command took the lease before and it has gone since; Repeated.
    """
    identity = subject.identity(origin.project)
    before = _locked(identity)
    draft = origin.draft("lease.acquired", session=subject.session, subject=identity)
    known = entries.look(draft, origin.received_us)
    if known is not None:
        return _taken_before(origin, before, known, process), False
    if before is None:
        return _first(origin, subject, process, ttl_s), True
    mine = before.agent_id == origin.agent and before.process == process
    if mine and before.released_at_us is None:
        last(origin.project, origin.agent, identity, before.epoch, ttl_s)
        tell_heard(
            origin.project, hear(origin.project, origin.agent, [Beat(identity, before.epoch)]), origin.received_us
        )
        return read().get(id=identity), False
    free = Q(released_at_us__isnull=False) | Q(expires_at_us__lte=DatabaseNow())
    if takeover:
        free |= Q(agent=origin.agent)
    took = Lease.objects.filter(free, id=identity, epoch=before.epoch).update(
        **_fresh(origin, process, ttl_s), epoch=F("epoch") + 1, takeovers=F("takeovers") + 1, version=F("version") + 1
    )
    if not took:
        raise Held(before)
    if before.released_at_us is None:
        why = "takeover" if is_live(before, origin.received_us) else "expired"
        _tell("lease.lost", before, origin.received_us, {"why": why})
    return _opened(origin, subject, before), True


def _taken_before(origin: Origin, lease: Lease | None, known: Appended, process: str) -> Lease:
    """What the lease that this command once took is now. Never told from the store: it may be another's by now."""
    if known.status is Status.CONFLICT or lease is None:
        raise Repeated
    still = (lease.opened_position, lease.process, lease.released_at_us) == (known.position, process, None)
    if not still or lease.agent_id != origin.agent:
        raise Lost(lease)
    return lease


def _first(origin: Origin, subject: Subject, process: str, ttl_s: int) -> Lease:
    """Store the first lease on `subject`. Where another transaction did so at once, the door runs again: Overtaken."""
    identity = subject.identity(origin.project)
    now = clock.SQL[connection.vendor]
    stored = sql.write(
        _INSERT.format(now=now),
        [
            *(vendor_id(identity), vendor_id(origin.project), subject.kind, subject.name),
            *(None if one is None else vendor_id(one) for one in (subject.session, subject.task)),
            *(vendor_id(origin.agent), process, ttl_s),
            *(ttl_s * US, DEAD_AFTER_TTLS * ttl_s * US, PROGRESS_WITHIN_S * US),
        ],
    )
    if not stored:
        raise Overtaken
    return _opened(origin, subject, None)


_INSERT: Final = """INSERT INTO agent_sessions_lease (id, project_id, kind, subject, session_id, task_id, agent_id,
  process, epoch, ttl_s, acquired_at_us, beat_at_us, progress_at_us, progress_token, expires_at_us,
  dead_at_us, wedged_at_us, takeovers, version, opened_position)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 1, %s, {now}, {now}, {now}, '', {now} + %s, {now} + %s, {now} + %s, 0, 1, 0)
ON CONFLICT DO NOTHING"""


def _fresh(origin: Origin, process: str, ttl_s: int) -> dict[str, Any]:
    """The columns of a lease that begins now."""
    now = DatabaseNow()
    return {
        "agent_id": origin.agent,
        "process": process,
        "ttl_s": ttl_s,
        "acquired_at_us": now,
        "beat_at_us": now,
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
    """As 64 bits: Django takes a plain number for 32, and PostgreSQL is sent what is left of it."""
    return Value(seconds * US, output_field=BigIntegerField())


def _opened(origin: Origin, subject: Subject, before: Lease | None) -> Lease:
    """Write the acquisition into the book and the session's fence, and give the lease its handle."""
    lease = read().get(id=subject.identity(origin.project))
    facts = {"epoch": lease.epoch, "kind": lease.kind, "ttl_s": lease.ttl_s, "expires_at_us": lease.expires_at_us}
    draft = origin.draft("lease.acquired", facts=as_text(facts), session=subject.session, subject=lease.id)
    draft.lease_epoch = lease.epoch
    appended = entries.append([draft], origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Overtaken  # the same command was done meanwhile: the next try finds what it took
    lease.opened_position = appended.position
    lease.save(update_fields=["opened_position"])
    if lease.kind == "session" and lease.session_id is not None:
        resumed = sessions.leased(lease.session_id, lease.epoch, again=before is not None)
        if resumed:
            _tell("session.resumed", lease, origin.received_us, {"takeovers": lease.takeovers})
    return lease


def release(origin: Origin, lease: UUID, epoch: int) -> Lease:
    """Give a lease up. Raises Lost when it is not the caller's any more, LookupError when there is none, Repeated."""
    row = of_project(origin.project, lease)
    if entries.look(origin.draft("lease.released", session=row.session_id, subject=row.id), origin.received_us):
        raise Repeated
    gone = Lease.objects.filter(id=lease, epoch=epoch, agent=origin.agent, released_at_us__isnull=True).update(
        released_at_us=DatabaseNow(), silent_since_us=None, version=F("version") + 1
    )
    if not gone:
        raise Lost(row)
    draft = origin.draft("lease.released", facts=as_text({"epoch": epoch}), session=row.session_id, subject=row.id)
    draft.lease_epoch = epoch
    if entries.append([draft], origin.received_us)[0].status is not Status.CREATED:
        raise Repeated
    if row.kind == "session" and row.session_id is not None:
        sessions.given_up(row.session_id, epoch + 1, origin.received_us)  # nobody writes here until it is taken again
    return read().get(id=lease)


def let_go(project: UUID, session: UUID, epoch: int, reason: str, user: User) -> bool:
    """Release a session's lease by a person's word, if it is still of that epoch; False when it is not.

    The holder is fenced from now on, whether it is dead or merely thought to be. It did not leave of itself, so its
    time is over too: the next claim may get the session, and its worker counts with what it never heard of.
    """
    now = now_us()
    sessions.lock(project, session, now, new_effects=0)
    rows = Lease.objects.select_for_update(no_key=True).filter(project=project, kind="session", session=session)
    row = rows.first()
    if row is None or (row.epoch, row.released_at_us) != (epoch, None):
        return False
    Lease.objects.filter(id=row.id).update(
        released_at_us=DatabaseNow(),
        expires_at_us=Least(F("expires_at_us"), DatabaseNow()),
        silent_since_us=None,
        version=F("version") + 1,
    )
    draft = _draft("lease.released", row, {"why": "person"}, row.epoch)
    draft.actor = pseudonym_of(user)
    draft.text = as_text({"kind": draft.kind, "lease": row.id, "epoch": epoch, "reason": reason})
    entries.append([draft], now)
    sessions.given_up(session, epoch + 1, now)
    return True


def end_of_session(session: UUID, received_us: int) -> None:
    """Let go of every lease within a session that has ended: nothing is expected of it, and no silence is news.

    Its fence stays: what was done under the last epoch may still be answered.
    """
    for lease in (
        Lease.objects.select_for_update(no_key=True).filter(session=session, released_at_us=None).order_by("id")
    ):
        Lease.objects.filter(id=lease.id).update(released_at_us=DatabaseNow(), silent_since_us=None)
        _tell("lease.released", lease, received_us, {"why": "session_ended"})


def last(project: UUID, agent: UUID, lease: UUID, epoch: int, ttl_s: int) -> None:
    """Change how long a lease lasts from its next beat on, if it is still the caller's."""
    Lease.objects.filter(id=lease, project=project, agent=agent, epoch=epoch, released_at_us=None).update(ttl_s=ttl_s)


_FOUND: Final = """SELECT id, epoch, session_id, silent_since_us, progress_token FROM agent_sessions_lease
WHERE project_id = %s AND agent_id = %s AND released_at_us IS NULL AND id {among}"""
_AMONG: Final = {
    "postgresql": "= ANY (%s::uuid[]) ORDER BY id FOR NO KEY UPDATE",
    "sqlite": "IN (SELECT value FROM json_each(%s))",
}
_GIVEN: Final = {
    "postgresql": "json_to_recordset(%s::json)"
    " AS given(id uuid, epoch bigint, moved boolean, token text, quiet bigint)",
    "sqlite": """(SELECT value ->> 'id' AS id, value ->> 'epoch' AS epoch, value ->> 'moved' AS moved,
  value ->> 'token' AS token, value ->> 'quiet' AS quiet FROM json_each(%s)) AS given""",
}
_MOST: Final = {"postgresql": "GREATEST", "sqlite": "MAX"}
_QUIET: Final = (
    f"CASE WHEN given.quiet IS NULL THEN quiet_until_us WHEN given.quiet > 0 THEN {{now}} + given.quiet * {US} END"
)
_BEAT: Final = f"""UPDATE agent_sessions_lease SET
  beat_at_us = {{now}}, silent_since_us = NULL, quiet_until_us = {{quiet}},
  expires_at_us = {{most}}({{now}} + ttl_s * {US}, COALESCE({{quiet}}, 0)),
  dead_at_us = {{most}}({{now}} + {DEAD_AFTER_TTLS} * ttl_s * {US}, COALESCE({{quiet}}, 0)),
  progress_token = CASE WHEN given.moved THEN given.token ELSE progress_token END,
  progress_at_us = CASE WHEN given.moved THEN {{now}} ELSE progress_at_us END,
  wedged_at_us = {{most}}(CASE WHEN given.moved THEN {{now}} ELSE progress_at_us END + {PROGRESS_WITHIN_S * US},
    COALESCE({{quiet}}, 0))
FROM {{given}} WHERE agent_sessions_lease.id = given.id AND agent_sessions_lease.epoch = given.epoch
  AND released_at_us IS NULL RETURNING agent_sessions_lease.id, beat_at_us, expires_at_us"""


def hear(project: UUID, agent: UUID, beats: Sequence[Beat]) -> list[Heard]:
    """Move the deadlines of the leases that these beats are of, in two statements; what is not the agent's is left out.

    Rows are locked in the order of their ids.
    """
    vendor = connection.vendor
    named = list({beat.lease for beat in beats})
    among: Any = named if vendor == "postgresql" else orjson.dumps([one.hex for one in named]).decode()
    found = sql.rows(_FOUND.format(among=_AMONG[vendor]), [vendor_id(project), vendor_id(agent), among])
    stored = {_uuid(row[0]): row for row in found}
    given: dict[UUID, dict[str, Any]] = {}
    for beat in beats:
        row = stored.get(beat.lease)
        if row is None or row[1] != beat.epoch:
            continue
        told = given.setdefault(beat.lease, {"id": vendor_id(beat.lease), "epoch": beat.epoch, "moved": False})
        if beat.progress is not None and beat.progress != row[4]:
            told |= {"moved": True, "token": beat.progress}
        if beat.quiet_s is not None:
            told["quiet"] = beat.quiet_s
    if not given:
        return []
    now = clock.SQL[vendor]
    text = _BEAT.format(now=now, most=_MOST[vendor], given=_GIVEN[vendor], quiet=_QUIET.format(now=now))
    heard = []
    for identity, beat_at_us, expires_at_us in sql.rows(text, [orjson.dumps(list(given.values())).decode()]):
        lease = _uuid(identity)
        _, epoch, session, silent, _ = stored[lease]
        silence = None if silent is None else beat_at_us - silent
        heard.append(
            Heard(
                lease,
                None if session is None else _uuid(session),
                epoch,
                beat_at_us,
                expires_at_us,
                given[lease]["moved"],
                silence,
            )
        )
    return heard


_PROGRESS: Final = f"""UPDATE agent_sessions_lease SET progress_at_us = {{now}}, wedged_at_us =
  {{most}}({{now}} + {PROGRESS_WITHIN_S * US}, COALESCE(quiet_until_us, 0))
WHERE id IN (SELECT id FROM agent_sessions_lease WHERE session_id = %s AND released_at_us IS NULL
  AND (kind = 'session' OR task_id = %s){{lock}}) RETURNING id, kind, epoch, progress_at_us"""


def move(session: UUID, task: UUID | None) -> list[tuple[UUID, str, int, int]]:
    """Say that something moved in a session: (lease, kind, epoch, now) of its lease and of that of `task`."""
    vendor = connection.vendor
    lock = " ORDER BY id FOR NO KEY UPDATE" if vendor == "postgresql" else ""
    text = _PROGRESS.format(now=clock.SQL[vendor], most=_MOST[vendor], lock=lock)
    moved = sql.rows(text, [vendor_id(session), vendor_id(task or NOTHING)])
    return [(_uuid(lease), kind, epoch, now) for lease, kind, epoch, now in moved]


def fall_silent(most: int, received_us: int) -> int:
    """Write into the book which holders of sessions have not been heard since their leases expired; returns how many.

    Each silence is told once: it ends with a beat, a takeover or a release.
    """
    overdue = Lease.objects.select_for_update(no_key=True, skip_locked=connection.vendor == "postgresql").filter(
        kind="session", released_at_us=None, silent_since_us=None, expires_at_us__lt=DatabaseNow()
    )
    found = list(overdue.order_by("expires_at_us")[:most])
    Lease.objects.filter(id__in=[lease.id for lease in found]).update(silent_since_us=F("beat_at_us"))
    drafts = [_draft("session.silent", lease, {"since_us": lease.beat_at_us}, lease.beat_at_us) for lease in found]
    entries.append(drafts, received_us)
    return len(found)


def tell_heard(project: UUID, heard: Sequence[Heard], received_us: int) -> None:
    """Write into the book that silences have ended."""
    ended = [one for one in heard if one.silent_us is not None]
    if not ended:
        return
    rows = {lease.id: lease for lease in Lease.objects.filter(project=project, id__in=[one.lease for one in ended])}
    drafts = [_draft("session.heard", rows[one.lease], {"silent_us": one.silent_us}, one.at_us) for one in ended]
    entries.append(drafts, received_us)


def _locked(lease: UUID) -> Lease | None:
    return read().select_for_update(no_key=True, of=("self",)).filter(id=lease).first()


def _tell(kind: str, lease: Lease, received_us: int, facts: dict[str, Any]) -> None:
    entries.append([_draft(kind, lease, facts, lease.epoch)], received_us)


def _draft(kind: str, lease: Lease, facts: dict[str, Any], once: int) -> Draft:
    """An entry in Gatebook's own name about a lease and its epoch; `once` tells it from others of its kind."""
    text = as_text({"kind": kind, "lease": lease.id, "epoch": lease.epoch, **facts})
    return Draft(
        project=lease.project_id,
        source=SYSTEM_SOURCE,
        event_id=entries.keyed_digest(kind, str(lease.id), str(lease.epoch), str(once)),
        kind=kind,
        lane="system",
        actor=SYSTEM_SOURCE,
        text=text,
        facts=as_text({"epoch": lease.epoch, **facts}),
        session=lease.session_id,
        subject=lease.id,
        lease_epoch=lease.epoch,
    )


def _uuid(value: UUID | str) -> UUID:
    """A UUID column as plain SQL gives it back on either vendor."""
    return value if isinstance(value, UUID) else UUID(value)
