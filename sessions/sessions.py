"""The one writer of Session: opens, touches and ends executions, by command or by what was reported of them."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db import connection

from journal import entries, naming, sql
from journal.entries import Status
from journal.order import earlier, is_of_a_command
from journal.sql import vendor_id
from journal.text import column_text
from sessions import openings, references, registers, repositories, speakers
from sessions.models import ENDED, Project, Session
from sessions.origin import Origin, Repeated
from sessions.speakers import Standing

_FIRST: Final = (
    "title",
    "branch",
    "mode",
    "labels",
)  # what the first `session.started` says and later ones cannot change
_STATUS_OF_KIND: Final = {
    "session.waiting": "waiting",
    "session.resumed": "running",
    "session.suspended": "suspended",
}
KINDS: Final = frozenset({"session.started", "session.ended", *_STATUS_OF_KIND, *registers.KINDS})


class UnknownOwner(Exception):
    """No person of that name belongs to the project; leave the owner out or add the person first."""


class UnknownRequester(Exception):
    """No person of that name belongs to the project: add them first, or leave on_behalf_of out."""


class UnknownParent(Exception):
    """No session of that id or key exists in this project; open the parent first."""


class AnotherRequester(Exception):
    """This session stands under or branches from one that works for somebody else."""


class UnknownBranch(Exception):
    """No session of that id or key exists in this project; a session branches from one that is open or was."""


@dataclass(slots=True)
class Report:
    """A fact about a session that is already in the journal. `values` holds the fields of its kind."""

    session: UUID
    key: str
    origin: Origin
    kind: str
    position: int
    values: dict[str, Any]


class Opened(NamedTuple):
    """A session, whether it is new, whether its description agrees with this one, and whether labels were added."""

    session: Session
    created: bool
    agrees: bool
    labelled: bool


def bring(row: Session) -> None:
    """Store the session of a bundle, as it stood in the book of origin. Expects an archive."""
    row.save(force_insert=True)


def open_session(origin: Origin, values: Mapping[str, Any]) -> Opened:
    """Open the session that `values["key"]` names, by command.

    A known key is the same session: nothing changes and nothing is recorded, but for labels that it does not have yet,
    which its own agent may add. It works for whom its parent and the session from which it branches
    work, and may name nobody else: an agent would otherwise let a person approve what is their own. Raises
    UnknownOwner, UnknownRequester, AnotherRequester, UnknownParent, UnknownBranch, NotAllowed, Repeated.
    """
    session = references.identity(origin.project, values["key"])
    described = {**values, "mode": values.get("mode") or "one_shot"}
    parent = None
    if values.get("parent"):
        try:
            above = references.find(origin.project, values["parent"])
        except references.NotFound as absent:
            raise UnknownParent(values["parent"]) from absent
        parent = above.id
    stem = None
    if values.get("branched_from"):
        try:
            stem = references.find(origin.project, values["branched_from"]).id
        except references.NotFound as absent:
            raise UnknownBranch(values["branched_from"]) from absent
    bequeathed = {named for one in (parent, stem) if one and (named := openings.requester(one)) is not None}
    if bequeathed:
        described["on_behalf_of"] = values.get("on_behalf_of") or min(bequeathed)
    if values.get("owner") and openings.member(origin.project, values["owner"]) is None:
        raise UnknownOwner(values["owner"])
    if values.get("on_behalf_of") and openings.member(origin.project, values["on_behalf_of"]) is None:
        raise UnknownRequester(values["on_behalf_of"])
    if bequeathed - {described.get("on_behalf_of")}:
        raise AnotherRequester
    touch(origin, {session: values["key"]}, position=0)
    row = Session.objects.get(id=session)
    known = bool(row.started_mark)
    standing = Standing.SPEAKS if row.agent_id == origin.agent else speakers.weigh_opening(origin, session)
    if standing is Standing.OTHER_AGENT:  # to find it again is no word for it, whoever holds its lease
        speakers.refuse(origin, session, "session.started", standing)
    facts = openings.started_facts(origin.project, described, parent)
    draft = origin.draft("session.started", facts=orjson.dumps(facts).decode(), session=session)
    if known:
        if entries.look(draft, origin.received_us) is not None:
            raise Repeated
        agrees = openings.agrees(row, values, parent, stem, origin.agent)
        return Opened(row, False, agrees, agrees and _add_labels(origin, row, values.get("labels") or {}))
    appended = entries.append([draft], origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    if row.opened_position == 0:
        row.opened_position = appended.position
        row.save(update_fields=["opened_position"])
    fact = Report(session, values["key"], origin, "session.started", appended.position, described)
    _apply(row, [fact], {values.get("parent") or "": parent, values.get("branched_from") or "": stem})
    return Opened(row, True, True, False)


def _add_labels(origin: Origin, row: Session, labels: Mapping[str, str]) -> bool:
    """Give a session (locked) labels that it does not have yet; what its labels say already stands."""
    more = {name: value for name, value in labels.items() if name not in row.labels}
    if not more:
        return False
    draft = origin.draft("session.changed", facts=orjson.dumps({"labelled": True}).decode(), session=row.id)
    if entries.append([draft], origin.received_us)[0].status is not Status.CREATED:
        raise Repeated
    row.labels = {**row.labels, **more}
    row.version += 1
    row.save(update_fields=["labels", "version"])
    return True


def end(origin: Origin, session: Session, status: str) -> Session:
    """End a session by command with one of the ended statuses. The first end by command stands. Raises Repeated."""
    # Not its key: whoever decides on a gate of it holds the gate and looks at this key when it commits.
    row = Session.objects.select_for_update(no_key=True).get(id=session.id)
    if row.status in ENDED and is_of_a_command(row.status_mark):
        origin.lane = "evidence"  # kept, and too late to count
    facts = orjson.dumps({"status": status}).decode()
    appended = entries.append([origin.draft("session.ended", facts=facts, session=session.id)], origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    _apply(row, [Report(row.id, row.key, origin, "session.ended", appended.position, {"status": status})], {})
    return row


def lock(project: UUID, session: UUID, now_us: int, *, new_effects: int) -> bool:
    """Lock the session's row, count `new_effects` and move its clock; False when the project has no such session."""
    text = (
        f"UPDATE agent_sessions_session SET seen_at_us = {_GREATEST}, effect_count = effect_count + %s"
        " WHERE id = %s AND project_id = %s"
    )
    return sql.write(text, [now_us, now_us, new_effects, vendor_id(session), vendor_id(project)]) == 1


def seen(project: UUID, session: UUID, now_us: int) -> bool:
    """Move the session's clock without waiting: a writer that holds its row moves the clock itself.

    True when it was moved, and a lease was ever taken on the session.

    For whoever holds an effect's row already. Everybody else locks the session first and its effects then, so waiting
    here would be a deadlock. An agent that speaks all the time moves it once in `SEEN_PRECISION_US`.
    """
    if 0 <= now_us - _moved.get(session.int, 0) < SEEN_PRECISION_US:
        return False
    if len(_moved) >= _MOST_MOVED:
        _moved.clear()
    _moved[session.int] = now_us
    mine = "%s"
    if connection.vendor == "postgresql":
        mine = "(SELECT id FROM agent_sessions_session WHERE id = %s FOR NO KEY UPDATE SKIP LOCKED)"
    text = f"UPDATE agent_sessions_session SET seen_at_us = {_GREATEST} WHERE id = {mine} AND project_id = %s"
    moved = sql.rows(f"{text} RETURNING fence", [now_us, now_us, vendor_id(session), vendor_id(project)])
    return bool(moved) and moved[0][0] is not None


SEEN_PRECISION_US: Final = 1_000_000
START_WITHIN_US: Final = 300_000_000  # a session of mode leased is late when nobody has taken it by then
_MOST_MOVED: Final = 10_000
_moved: dict[int, int] = {}  # a session's number -> when this process last moved its clock by `seen`


def lock_meant(project: UUID, reference: str, now_us: int, *, new_effects: int) -> UUID | None:
    """Lock the session that an id or key means, as `lock` does: its id, or None when the project has none such."""
    if len(reference) in (32, 36):
        with suppress(ValueError):
            shaped = UUID(reference)
            if lock(project, shaped, now_us, new_effects=new_effects):
                return shaped
    named = references.identity(project, reference)
    return named if lock(project, named, now_us, new_effects=new_effects) else None


_IS_OPEN: Final = "status NOT IN ('completed', 'failed', 'cancelled')"


def leased(session: UUID, fence: int, *, again: bool) -> bool:
    """Let nobody write in a session under a lower epoch than `fence` from now on; `again` where it was taken over.

    Returns whether it goes on by that: one that has ended is taken to undo something, and is not resumed.
    """
    goes_on = f"CASE WHEN {_IS_OPEN} THEN %s ELSE 0 END"
    text = (
        f"UPDATE agent_sessions_session SET fence = %s, start_by_us = NULL, resumes = resumes + {goes_on}"
        f" WHERE id = %s AND (fence IS NULL OR fence <= %s) RETURNING {_IS_OPEN}"
    )
    told = sql.rows(text, [fence, int(again), vendor_id(session), fence])
    return again and bool(told and told[0][0])


def given_up(session: UUID, fence: int, now_us: int) -> None:
    """Let nobody write under a lower epoch than `fence`, and wait for whoever takes the session next (rule S7)."""
    leased(session, fence, again=False)
    text = "UPDATE agent_sessions_session SET start_by_us = %s WHERE id = %s AND mode = 'leased'"
    text += f" AND {_IS_OPEN}"
    sql.write(text, [now_us + START_WITHIN_US, vendor_id(session)])


_GREATEST: Final = "CASE WHEN seen_at_us > %s THEN seen_at_us ELSE %s END"
_COLUMNS: Final = (
    "id, project_id, key, agent_id, branch, title, mode, status, cursor, labels, opened_position, effect_count,"
    " created_at_us, seen_at_us, started_mark, status_mark, version"
)
_STUB: Final = "'', '', 'reported', 'running', '', '{}'"  # branch, title, mode, status, cursor, labels
_ON_CONFLICT: Final = """ ON CONFLICT (id) DO UPDATE SET seen_at_us =
  CASE WHEN agent_sessions_session.seen_at_us > excluded.seen_at_us THEN agent_sessions_session.seen_at_us
  ELSE excluded.seen_at_us END"""
_TOUCH_SQLITE: Final = (
    f"INSERT INTO agent_sessions_session ({_COLUMNS})"
    f" VALUES (%s, %s, %s, %s, {_STUB}, %s, 0, %s, %s, '', '', 1){_ON_CONFLICT}"
)
_TOUCH_POSTGRESQL: Final = (
    f"INSERT INTO agent_sessions_session ({_COLUMNS})"
    f" SELECT id, %s::uuid, key, %s::uuid, {_STUB}, opened, 0, %s::bigint, %s::bigint, '', '', 1"
    f" FROM json_to_recordset(%s::json) AS given(id uuid, key text, opened bigint) ORDER BY id{_ON_CONFLICT}"
)


def touch(origin: Origin, sessions: Mapping[UUID, str | None], position: int | Mapping[UUID, int]) -> None:
    """Make sure that each session (id to key) is stored, lock it, and move its clock.

    One that no fact has opened yet is kept as reported, under `position`. One without a key is known to be stored.
    """
    ordered = sorted(sessions, key=lambda session: session.bytes)
    now_us = origin.received_us
    new = []
    for session in ordered:
        key = sessions[session]
        if key is None:
            lock(origin.project, session, now_us, new_effects=0)
        else:
            new.append((session, key, position if isinstance(position, int) else position[session]))
    if not new:
        return
    if connection.vendor == "postgresql":
        document = orjson.dumps([{"id": session, "key": key, "opened": opened} for session, key, opened in new])
        sql.write(_TOUCH_POSTGRESQL, [origin.project, origin.agent, now_us, now_us, document.decode()])
        return
    project, agent = origin.project.hex, origin.agent.hex
    values = [(session.hex, project, key, agent, opened, now_us, now_us) for session, key, opened in new]
    sql.write_each(_TOUCH_SQLITE, values)


def name(origin: Origin, sessions: Iterable[UUID]) -> dict[UUID, int]:
    """Say in the book that facts name these sessions; return, for each that is not stored yet, the position to open it.

    A position of its own, since that of the fact which names it opens the session that this fact is of.
    """
    wanted = set(sessions)
    stored = set(Session.objects.filter(id__in=wanted).values_list("id", flat=True)) if wanted else set()
    about = {session: {"session": session} for session in sorted(wanted - stored)}
    return naming.name(origin.project, "session.named", about, origin.received_us)


def adopt(sessions: Iterable[UUID], agent: UUID) -> None:
    """Give sessions that were only named so far to the agent that is the first to speak for them."""
    Session.objects.filter(id__in=list(sessions), started_mark="").update(agent=agent)


def agents_of(sessions: Iterable[UUID]) -> dict[UUID, UUID]:
    """The agent of each of these sessions."""
    return dict(Session.objects.filter(id__in=list(sessions)).values_list("id", "agent"))


def count_effects(new_effects: Mapping[UUID, int]) -> None:
    """Add newly stored effects to their sessions, whose rows are locked."""
    if not new_effects:
        return
    if connection.vendor == "postgresql":
        rows = [{"id": session, "more": number} for session, number in new_effects.items()]
        sql.write(
            "UPDATE agent_sessions_session SET effect_count = effect_count + more"
            " FROM json_to_recordset(%s::json) AS given(id uuid, more int)"
            " WHERE agent_sessions_session.id = given.id",
            [orjson.dumps(rows).decode()],
        )
        return
    sql.write_each(
        "UPDATE agent_sessions_session SET effect_count = effect_count + %s WHERE id = %s",
        [(number, session.hex) for session, number in sorted(new_effects.items())],
    )


def report(reports: Sequence[Report], meant: Mapping[str, UUID]) -> None:
    """Fold facts into their sessions, whose rows are stored and locked. `meant` says which session a reference is."""
    by_session: dict[UUID, list[Report]] = {}
    for fact in reports:
        by_session.setdefault(fact.session, []).append(fact)
    for session, facts in sorted(by_session.items()):
        _apply(Session.objects.get(id=session), facts, meant)


def _apply(row: Session, facts: Sequence[Report], meant: Mapping[str, UUID | None]) -> None:
    """The session's own fold: the first start describes it, the latest word is its status, the first end is final."""
    opened_as = registers.first_title(row)
    for fact in facts:
        mark, told_us = fact.origin.mark, fact.origin.told_us
        registers.hear(row, fact, meant)
        status = fact.values.get("status") if fact.kind == "session.changed" else _STATUS_OF_KIND.get(fact.kind)
        latest = fact.origin.latest_mark(fact.position)
        if fact.kind == "session.started" and earlier(mark, row.started_mark):
            row.started_mark = mark
            row.started_at_us = told_us
            row.agent_id = fact.origin.agent  # until now, whoever spoke of the session first
            for name in _FIRST:
                setattr(row, name, fact.values.get(name) or _DEFAULTS[name])
            opened_as = row.title = column_text(row.title)
            parent = meant.get(fact.values.get("parent") or "")
            row.parent_id = parent if parent != row.id else None
            row.owner = openings.member(row.project_id, fact.values.get("owner"))
            row.on_behalf_of = openings.member(row.project_id, fact.values.get("on_behalf_of"))
            awaited = row.mode == "leased" and row.fence is None and row.status not in ENDED
            row.start_by_us = fact.origin.received_us + START_WITHIN_US if awaited else None
            repository = fact.values.get("repository")
            row.repository = repositories.ensure(Project(id=row.project_id), repository) if repository else None
        elif fact.kind == "session.ended" and (row.status not in ENDED or earlier(mark, row.status_mark)):
            row.status, row.status_mark, row.ended_at_us = fact.values["status"], mark, told_us
            row.start_by_us = None
            row.waiting_on = ""
        elif status and row.status not in ENDED and latest > row.status_mark:
            row.status, row.status_mark = status, latest
            row.waiting_on = fact.values.get("waiting_on") or ""
    registers.settle(row, opened_as)
    row.version += 1
    row.save()


_DEFAULTS: Final[dict[str, Any]] = {"title": "", "branch": "", "mode": "reported", "labels": {}}
