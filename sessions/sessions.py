"""The one writer of Session: open, touch and end sessions, and apply facts.

Facts arrive as commands or as reports (evidence); the row is folded from both. Order keys decide
which start, status and end count, and in `Session.field_history` which title, cursor and links.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import connection

from accounts import repositories
from accounts.models import Project, Repository
from accounts.people import ensure_pseudonym
from db import raw_sql
from db.raw_sql import vendor_id
from db.row_changes import RowChange, write_row_changes
from db.text import to_column_text
from journal import entries, sent_meta
from journal.entries import AppendStatus, Origin, RepeatedKey
from journal.order_keys import is_command_mark, is_earlier_mark
from sessions import lookup, writers
from sessions.models import ENDED, Session
from sessions.writers import WriterStatus

# Fields that the first `session.started` sets and later ones cannot change.
_START_FIELDS: Final = ("title", "branch", "mode", "labels")
_STATUS_OF_KIND: Final = {
    "session.waiting": "waiting",
    "session.resumed": "running",
    "session.suspended": "suspended",
}
# `checkpoint.written` is one of them: a checkpoint also sets the cursor of its session.
FIELD_CHANGE_KINDS: Final = frozenset(
    {"session.changed", "session.branched", "session.merged", "checkpoint.written"}
)
SESSION_FACT_KINDS: Final = frozenset(
    {"session.started", "session.ended", *_STATUS_OF_KIND, *FIELD_CHANGE_KINDS}
)
# The order keys of these fields are in `Session.field_history`, with the value that counts: of
# `LATEST_WINS_FIELDS` the latest, of `FIRST_WINS_FIELDS` the first. Once the title was changed,
# `first_title` there is the title that the opening gave.
LATEST_WINS_FIELDS: Final = ("title", "cursor", "merge_into", "merge_intent")
FIRST_WINS_FIELDS: Final = ("branched_from", "merged_into")
_LINKS: Final = ("merge_into", "branched_from", "merged_into")  # named by reference, kept by id


class UnknownOwner(Exception):
    """The owner is not a member of the project."""


class UnknownRequester(Exception):
    """The person of `on_behalf_of` is not a member of the project."""


class UnknownParentSession(Exception):
    """No session in this project has the id or key of the parent."""


class RequesterMismatch(Exception):
    """The parent or source session works on behalf of another person."""


class UnknownSourceSession(Exception):
    """No session in this project has the id or key to branch from."""


@dataclass(slots=True)
class SessionFact:
    """A journaled fact about a session; `values` holds the fields of its kind."""

    session: UUID
    key: str
    origin: Origin
    kind: str
    position: int
    values: dict[str, Any]


class OpenedSession(NamedTuple):
    """Result of opening a session.

    `created` is True for a new session, `agrees` where the new description matches the stored one,
    `described` where labels or meta were added.
    """

    session: Session
    created: bool
    agrees: bool
    described: bool


def import_session(row: Session) -> None:
    """Store a session of a bundle as its source had it, in an archive project."""
    row.save(force_insert=True)


def restore_sessions(changes: Sequence[RowChange]) -> None:
    """Restore sessions to what the journal gives (manage.py rebuild)."""
    write_row_changes(Session, changes)


def open_session(origin: Origin, values: Mapping[str, Any]) -> OpenedSession:
    """Open the session that `values["key"]` names, by command.

    A key that exists names the same session. Nothing changes and nothing is recorded, except that
    the session's own agent may add labels that the session lacks, and that `meta` adds keys and
    replaces values. A session works on behalf of the
    same person as its parent and as the session that it branches from, and may name no other: an
    agent could otherwise let a person approve what that person requested.

    Raises UnknownOwner, UnknownRequester, RequesterMismatch, UnknownParentSession,
    UnknownSourceSession, WriterNotAllowed, RepeatedKey.
    """
    session = lookup.derive_session_id(origin.project, values["key"])
    described = {**values, "mode": values.get("mode") or "one_shot"}
    parent = None
    if values.get("parent"):
        try:
            parent_session = lookup.load_session(origin.project, values["parent"])
        except lookup.SessionNotFound as absent:
            raise UnknownParentSession(values["parent"]) from absent
        parent = parent_session.id
    source = None
    if values.get("branched_from"):
        try:
            source = lookup.load_session(origin.project, values["branched_from"]).id
        except lookup.SessionNotFound as absent:
            raise UnknownSourceSession(values["branched_from"]) from absent
    requesters = {
        requester
        for reference in (parent, source)
        if reference and (requester := find_requester(reference)) is not None
    }
    if requesters:
        described["on_behalf_of"] = values.get("on_behalf_of") or min(requesters)
    if values.get("owner") and find_member(origin.project, values["owner"]) is None:
        raise UnknownOwner(values["owner"])
    if values.get("on_behalf_of") and find_member(origin.project, values["on_behalf_of"]) is None:
        raise UnknownRequester(values["on_behalf_of"])
    if requesters - {described.get("on_behalf_of")}:
        raise RequesterMismatch
    touch_sessions(origin, {session: values["key"]}, position=0)
    row = Session.objects.get(id=session)
    is_started = bool(row.started_mark)
    standing = (
        WriterStatus.SPEAKS
        if row.agent_id == origin.agent
        else writers.load_opener_status(origin, session)
    )
    # Opening a known session again writes nothing, so a lost lease does not forbid it.
    if standing is WriterStatus.OTHER_AGENT:
        writers.reject_writer(origin, session, "session.started", standing)
    facts = load_start_facts(origin.project, described, parent)
    draft = origin.draft("session.started", facts=orjson.dumps(facts).decode(), session=session)
    agrees = is_started and matches_opening(row, values, parent, source, origin.agent)
    # A report that described the session first does not stand in the way of its opening.
    if agrees or is_command_mark(row.started_mark):
        if entries.compare_with_stored(draft, origin.received_us) is not None:
            raise RepeatedKey
        return OpenedSession(row, False, agrees, agrees and _add_description(origin, row, values))
    position = origin.append_draft(draft)
    if row.opened_position == 0:
        row.opened_position = position
        row.save(update_fields=["opened_position"])
    fact = SessionFact(session, values["key"], origin, "session.started", position, described)
    _apply_facts(
        row, [fact], {values.get("parent") or "": parent, values.get("branched_from") or "": source}
    )
    return OpenedSession(row, True, True, False)


def _add_description(origin: Origin, row: Session, values: Mapping[str, Any]) -> bool:
    """Record labels that a locked session lacks, and meta that is new or differs.

    Labels that exist keep their values.
    """
    labels = values.get("labels") or {}
    missing = {name: value for name, value in labels.items() if name not in row.labels}
    meta = values.get("meta") or {}
    stored_meta = sent_meta.load_session_meta(row.id) if meta else {}
    is_described = any(
        name not in stored_meta or stored_meta[name] != value for name, value in meta.items()
    )
    if not missing and not is_described:
        return False
    kind = sent_meta.DESCRIPTION_KIND if is_described else "session.changed"
    facts = orjson.dumps({"labelled": True}).decode() if missing else "{}"
    origin.append_draft(origin.draft(kind, facts=facts, session=row.id))
    if missing:
        row.labels = {**row.labels, **missing}
        row.version += 1
        row.save(update_fields=["labels", "version"])
    return True


def close_session(origin: Origin, session: Session, status: str) -> Session:
    """End a session by command. Only the first end counts. Raises RepeatedKey."""
    # Lock without the key: deciding on a gate locks the gate and checks this key when it commits.
    row = Session.objects.select_for_update(no_key=True).get(id=session.id)
    if row.status in ENDED and is_command_mark(row.status_mark):
        origin.lane = "evidence"  # recorded, but too late to count
    facts = orjson.dumps({"status": status}).decode()
    appended = entries.append_entries(
        [origin.draft("session.ended", facts=facts, session=session.id)], origin.received_us
    )[0]
    if appended.status is not AppendStatus.CREATED:
        raise RepeatedKey
    _apply_facts(
        row,
        [
            SessionFact(
                row.id, row.key, origin, "session.ended", appended.position, {"status": status}
            )
        ],
        {},
    )
    return row


def lock_session_row(project: UUID, session: UUID, now_us: int, *, new_effects: int) -> bool:
    """Lock a session's row, add `new_effects` to its count and advance its clock.

    Returns False when the project has no such session.
    """
    text = (
        f"UPDATE agent_sessions_session SET seen_at_us = {_GREATEST},"
        " effect_count = effect_count + %s WHERE id = %s AND project_id = %s"
    )
    parameters = [now_us, now_us, new_effects, vendor_id(session), vendor_id(project)]
    return raw_sql.execute_write(text, parameters) == 1


def touch_session_nowait(project: UUID, session: UUID, now_us: int) -> bool:
    """Advance a session's clock without waiting for its row lock.

    For callers that already lock an effect's row. All others lock the session before its effects,
    so waiting would deadlock. A writer that locks the session's row advances the clock itself. Each
    process advances a session's clock at most once per `SEEN_PRECISION_US`.

    Returns True when the clock was advanced and a lease was ever taken on the session.
    """
    if 0 <= now_us - _moved.get(session.int, 0) < SEEN_PRECISION_US:
        return False
    if len(_moved) >= _MAX_MOVED:
        _moved.clear()
    _moved[session.int] = now_us
    selected = "%s"
    if connection.vendor == "postgresql":
        selected = (
            "(SELECT id FROM agent_sessions_session WHERE id = %s FOR NO KEY UPDATE SKIP LOCKED)"
        )
    text = (
        f"UPDATE agent_sessions_session SET seen_at_us = {_GREATEST}"
        f" WHERE id = {selected} AND project_id = %s RETURNING fence"
    )
    moved = raw_sql.fetch_rows(text, [now_us, now_us, vendor_id(session), vendor_id(project)])
    return bool(moved) and moved[0][0] is not None


SEEN_PRECISION_US: Final = 1_000_000
START_WITHIN_US: Final = 300_000_000  # a session of mode leased without a holder is late then
_MAX_MOVED: Final = 10_000
_moved: dict[int, int] = {}  # session's number -> when this process last advanced its clock


def lock_session_by_reference(
    project: UUID, reference: str, now_us: int, *, new_effects: int
) -> UUID | None:
    """Lock a session by id or key, as `lock_session_row` does, and return its id.

    Returns None when the project has no such session.
    """
    if len(reference) in (32, 36):
        with suppress(ValueError):
            identity = UUID(reference)
            if lock_session_row(project, identity, now_us, new_effects=new_effects):
                return identity
    derived = lookup.derive_session_id(project, reference)
    return derived if lock_session_row(project, derived, now_us, new_effects=new_effects) else None


_IS_OPEN: Final = "status NOT IN ('completed', 'failed', 'cancelled')"


def fence_session(session: UUID, fence: int, *, again: bool) -> bool:
    """Reject writes to a session under a lower epoch than `fence` from now on.

    `again` is True where the lease was taken over. Returns True when that resumes the session: an
    ended session is leased only to compensate its effects, and is not resumed.
    """
    increment = f"CASE WHEN {_IS_OPEN} THEN %s ELSE 0 END"
    text = (
        "UPDATE agent_sessions_session SET fence = %s, start_by_us = NULL,"
        f" resumes = resumes + {increment}"
        f" WHERE id = %s AND (fence IS NULL OR fence <= %s) RETURNING {_IS_OPEN}"
    )
    rows = raw_sql.fetch_rows(text, [fence, int(again), vendor_id(session), fence])
    return again and bool(rows and rows[0][0])


def fence_released_session(session: UUID, fence: int, now_us: int) -> None:
    """Reject writes under a lower epoch than `fence`; expect a new holder (rule S7)."""
    fence_session(session, fence, again=False)
    text = "UPDATE agent_sessions_session SET start_by_us = %s WHERE id = %s AND mode = 'leased'"
    text += f" AND {_IS_OPEN}"
    raw_sql.execute_write(text, [now_us + START_WITHIN_US, vendor_id(session)])


_GREATEST: Final = "CASE WHEN seen_at_us > %s THEN seen_at_us ELSE %s END"
_COLUMNS: Final = (
    "id, project_id, key, agent_id, branch, title, mode, status, cursor, labels, opened_position,"
    " effect_count, created_at_us, seen_at_us, started_mark, status_mark, version"
)
# branch, title, mode, status, cursor, labels
_STUB: Final = "'', '', 'reported', 'running', '', '{}'"
_ON_CONFLICT: Final = """ ON CONFLICT (id) DO UPDATE SET seen_at_us =
  CASE WHEN agent_sessions_session.seen_at_us > excluded.seen_at_us
    THEN agent_sessions_session.seen_at_us ELSE excluded.seen_at_us END"""
_TOUCH_SQLITE: Final = (
    f"INSERT INTO agent_sessions_session ({_COLUMNS})"
    f" VALUES (%s, %s, %s, %s, {_STUB}, %s, 0, %s, %s, '', '', 1){_ON_CONFLICT}"
)
_TOUCH_POSTGRESQL: Final = (
    f"INSERT INTO agent_sessions_session ({_COLUMNS})"
    f" SELECT id, %s::uuid, key, %s::uuid, {_STUB}, opened, 0, %s::bigint, %s::bigint, '', '', 1"
    " FROM json_to_recordset(%s::json) AS given(id uuid, key text, opened bigint)"
    f" ORDER BY id{_ON_CONFLICT}"
)


def touch_sessions(
    origin: Origin, sessions: Mapping[UUID, str | None], position: int | Mapping[UUID, int]
) -> None:
    """Store missing sessions (id to key), lock them all and advance their clocks.

    A session that no fact has opened yet is stored as reported, under `position`. A session without
    a key is known to be stored.
    """
    ordered = sorted(sessions, key=lambda session: session.bytes)
    now_us = origin.received_us
    new = []
    for session in ordered:
        key = sessions[session]
        if key is None:
            lock_session_row(origin.project, session, now_us, new_effects=0)
        else:
            new.append((session, key, position if isinstance(position, int) else position[session]))
    if not new:
        return
    if connection.vendor == "postgresql":
        document = orjson.dumps(
            [{"id": session, "key": key, "opened": opened} for session, key, opened in new]
        )
        raw_sql.execute_write(
            _TOUCH_POSTGRESQL, [origin.project, origin.agent, now_us, now_us, document.decode()]
        )
        return
    project, agent = origin.project.hex, origin.agent.hex
    values = [
        (session.hex, project, key, agent, opened, now_us, now_us) for session, key, opened in new
    ]
    raw_sql.execute_write_each(_TOUCH_SQLITE, values)


def record_named_sessions(origin: Origin, sessions: Iterable[UUID]) -> dict[UUID, int]:
    """Journal each named session that is not stored; return its opening position.

    The entry gets a position of its own, because the position of the fact that names the session
    opens the session that the fact is about.
    """
    wanted = set(sessions)
    stored = (
        set(Session.objects.filter(id__in=wanted).values_list("id", flat=True)) if wanted else set()
    )
    about = {session: {"session": session} for session in sorted(wanted - stored)}
    return entries.append_named_entries(origin.project, "session.named", about, origin.received_us)


def assign_named_sessions(sessions: Iterable[UUID], agent: UUID) -> None:
    """Assign sessions that were only named to the first agent that writes for them."""
    Session.objects.filter(id__in=list(sessions), started_mark="").update(agent=agent)


def load_session_agents(sessions: Iterable[UUID]) -> dict[UUID, UUID]:
    """Return the agent of each session."""
    return dict(Session.objects.filter(id__in=list(sessions)).values_list("id", "agent"))


def add_effect_counts(new_effects: Mapping[UUID, int]) -> None:
    """Add newly stored effects to the counts of their sessions, whose rows are locked."""
    if not new_effects:
        return
    if connection.vendor == "postgresql":
        rows = [{"id": session, "more": number} for session, number in new_effects.items()]
        raw_sql.execute_write(
            "UPDATE agent_sessions_session SET effect_count = effect_count + more"
            " FROM json_to_recordset(%s::json) AS given(id uuid, more int)"
            " WHERE agent_sessions_session.id = given.id",
            [orjson.dumps(rows).decode()],
        )
        return
    raw_sql.execute_write_each(
        "UPDATE agent_sessions_session SET effect_count = effect_count + %s WHERE id = %s",
        [(number, session.hex) for session, number in sorted(new_effects.items())],
    )


def apply_session_facts(reports: Sequence[SessionFact], meant: Mapping[str, UUID]) -> None:
    """Apply facts to their sessions, whose rows are stored and locked.

    `meant` maps each reference to the session that it names.
    """
    by_session: dict[UUID, list[SessionFact]] = {}
    for fact in reports:
        by_session.setdefault(fact.session, []).append(fact)
    rows = Session.objects.in_bulk(list(by_session)) if by_session else {}
    for session, facts in sorted(by_session.items()):
        _apply_facts(rows[session], facts, meant)


class StartLinks(NamedTuple):
    """The rows that a start names."""

    owner: User | None = None
    on_behalf_of: User | None = None
    repository: Repository | None = None


_NO_LINKS: Final = StartLinks()


def _apply_facts(
    row: Session, facts: Sequence[SessionFact], meant: Mapping[str, UUID | None]
) -> None:
    """Fold facts into a session's row, and store it."""
    for fact in facts:
        links = _load_start_links(row, fact) if _describes_session(row, fact) else _NO_LINKS
        fold_session_fact(row, fact, meant, links)
    row.version += 1
    row.save()


def _describes_session(row: Session, fact: SessionFact) -> bool:
    """Return whether this start counts: the first by its order key."""
    return fact.kind == "session.started" and is_earlier_mark(fact.origin.mark, row.started_mark)


def _load_start_links(row: Session, fact: SessionFact) -> StartLinks:
    repository = fact.values.get("repository")
    project = Project(id=row.project_id)
    return StartLinks(
        find_member(row.project_id, fact.values.get("owner")),
        find_member(row.project_id, fact.values.get("on_behalf_of")),
        repositories.ensure_repository(project, repository) if repository else None,
    )


def fold_session_fact(
    row: Session, fact: SessionFact, meant: Mapping[str, UUID | None], links: StartLinks
) -> None:
    """Fold one fact into a session's row. Pure.

    The first start describes the session, the latest report sets its status, the first end is
    final. `meant` maps each reference to the session that it names.
    """
    mark, latest = fact.origin.mark, fact.origin.latest_mark(fact.position)
    opened_as = first_session_title(row)
    fold_field_fact(row, fact, meant)
    status = (
        fact.values.get("status")
        if fact.kind == "session.changed"
        else _STATUS_OF_KIND.get(fact.kind)
    )
    if _describes_session(row, fact):
        row.started_mark = mark
        row.started_at_us = fact.origin.told_us
        row.agent_id = fact.origin.agent  # until now, the agent that first named the session
        for name in _START_FIELDS:
            setattr(row, name, fact.values.get(name) or _DEFAULTS[name])
        opened_as = row.title = to_column_text(row.title)
        parent = meant.get(fact.values.get("parent") or "")
        row.parent_id = parent if parent != row.id else None
        row.owner, row.on_behalf_of, row.repository = links
        is_awaited = row.mode == "leased" and row.fence is None and row.status not in ENDED
        row.start_by_us = fact.origin.received_us + START_WITHIN_US if is_awaited else None
    elif fact.kind == "session.ended" and (
        row.status not in ENDED or is_earlier_mark(mark, row.status_mark)
    ):
        row.status, row.status_mark = fact.values["status"], mark
        row.ended_at_us = fact.origin.told_us
        row.start_by_us = None
        row.waiting_on = ""
    elif status and row.status not in ENDED and latest > row.status_mark:
        row.status, row.status_mark = status, latest
        row.waiting_on = fact.values.get("waiting_on") or ""
    set_session_fields(row, opened_as)


_DEFAULTS: Final[dict[str, Any]] = {"title": "", "branch": "", "mode": "reported", "labels": {}}


def collect_session_references(values: Mapping[str, Any]) -> set[str]:
    """Return the other sessions, by id or key, that a session's fact names."""
    return {values[name] for name in ("parent", *_LINKS, "into") if values.get(name)}


def fold_field_fact(row: Session, fact: SessionFact, meant: Mapping[str, UUID | None]) -> None:
    """Fold one fact into a session's field history. Pure.

    `meant` maps each reference to the session that it names.
    """
    values = dict(fact.values)
    if fact.kind == "session.merged":
        values = {"merged_into": values["into"]}
    elif fact.kind == "session.started":
        values = {"branched_from": values.get("branched_from")}
    elif fact.kind == "checkpoint.written":
        values = {"cursor": values.get("cursor")}
    for name in (*LATEST_WINS_FIELDS, *FIRST_WINS_FIELDS):
        value = values.get(name)
        if value is None:
            continue
        if name in _LINKS:
            link = meant.get(value)
            value = None if link is None or link == row.id else str(link)
            if value is None:
                continue
        entry = row.field_history.get(name)
        latest = fact.origin.latest_mark(fact.position)
        if name in LATEST_WINS_FIELDS and (entry is None or latest > entry[0]):
            row.field_history[name] = [latest, to_column_text(value)]
        elif name in FIRST_WINS_FIELDS and is_earlier_mark(
            fact.origin.mark, entry[0] if entry else ""
        ):
            row.field_history[name] = [fact.origin.mark, value]


def set_session_fields(row: Session, opened_as: str) -> None:
    """Set the columns from the field history. `opened_as` is the title of the opening."""
    if "title" in row.field_history:
        row.field_history["first_title"] = opened_as
    for name in (*LATEST_WINS_FIELDS, *FIRST_WINS_FIELDS):
        if name in row.field_history:
            value = row.field_history[name][1]
            setattr(
                row,
                f"{name}_id" if name in _LINKS else name,
                UUID(value) if name in _LINKS else value,
            )


def first_session_title(row: Session) -> str:
    """Return the title that the opening gave."""
    return str(row.field_history.get("first_title", row.title))


MAX_ANCESTORS: Final = 100  # sessions whose requester is read


def load_start_facts(
    project: UUID, values: Mapping[str, Any], parent: UUID | None
) -> dict[str, Any]:
    """Return the facts of a start for the journal, with the pseudonyms of its people.

    Stores a pseudonym for a person who has none. An owner who is no member of the project counts as
    none.
    """
    facts: dict[str, Any] = {"mode": values.get("mode") or "reported", "parent": parent}
    if values.get("owner"):
        owner = find_member(project, values["owner"])
        facts["owner"] = None if owner is None else ensure_pseudonym(owner)
    person = find_member(project, values.get("on_behalf_of"))
    return facts if person is None else facts | {"on_behalf_of": ensure_pseudonym(person)}


def matches_opening(
    row: Session, values: Mapping[str, Any], parent: UUID | None, stem: UUID | None, agent: UUID
) -> bool:
    """Return True when a second opening describes the session as the first did.

    Omitted fields are not compared. Labels that the session lacks agree where its own agent sends
    them, because they are added. `parent` is the parent session, `stem` the one that it branched
    from.
    """
    repository = row.repository.name if row.repository else None
    stored = {"repository": repository, "branch": row.branch, "mode": row.mode}
    stored["title"] = first_session_title(row)
    for name, person in (("owner", row.owner), ("on_behalf_of", row.on_behalf_of)):
        stored[name] = person.get_username() if person is not None else None
    sent = {**values, "title": to_column_text(values.get("title") or "")}
    differs = any(sent.get(name) and sent[name] != stored[name] for name in stored)
    labels = values.get("labels") or {}
    is_own = row.agent_id == agent
    differs |= any(
        row.labels.get(name, value if is_own else None) != value for name, value in labels.items()
    )
    return not differs and parent in (None, row.parent_id) and stem in (None, row.branched_from_id)


def find_requester(session: UUID) -> str | None:
    """Return the name of the person that a session works on behalf of.

    The person named farthest up, by its parents and source sessions, counts before its own.
    Reported sessions may arrive before their parents, or name another person, so that this is
    computed on use and not stored.
    """
    visited, level, requester_name = {session}, [session], None
    while level and len(visited) <= MAX_ANCESTORS:
        rows = list(
            Session.objects.filter(id__in=level).values_list(
                "on_behalf_of__username", "parent_id", "branched_from_id"
            )
        )
        requester_name = min((name for name, _, _ in rows if name), default=requester_name)
        level = [
            ancestor
            for _, *ancestors in rows
            for ancestor in ancestors
            if ancestor is not None and ancestor not in visited
        ]
        visited.update(level)
    return requester_name


def find_member(project: UUID, username: str | None) -> User | None:
    """Return the project's member of that name, or None."""
    if not username:
        return None
    return User.objects.filter(username=username, memberships__project=project).first()


def update_session(
    origin: Origin, session: Session, values: Mapping[str, Any], meant: Mapping[str, UUID]
) -> Session:
    """Change a session's fields by command.

    Fields are title, cursor, status with waiting_on, merge_into and merge_intent. `meant` gives the
    id of the session that `merge_into` names. The row must be locked. Raises RepeatedKey.
    """
    return _append_and_apply(origin, "session.changed", session, values, meant)


def record_session_merge(origin: Origin, session: Session, into: UUID) -> Session:
    """Record that this branch is merged into `into`, once. Raises RepeatedKey."""
    return _append_and_apply(
        origin, "session.merged", session, {"into": str(into)}, {str(into): into}
    )


def _append_and_apply(
    origin: Origin,
    kind: str,
    session: Session,
    values: Mapping[str, Any],
    meant: Mapping[str, UUID],
) -> Session:
    draft = origin.draft(kind, facts=dump_session_change_facts(values, meant), session=session.id)
    position = origin.append_draft(draft)
    fact = SessionFact(session.id, session.key, origin, kind, position, dict(values))
    apply_session_facts([fact], meant)
    return lookup.load_session(origin.project, str(session.id))


def dump_session_change_facts(values: Mapping[str, Any], meant: Mapping[str, UUID]) -> str:
    """Return a change's facts for the journal: the status, and other sessions by id."""
    facts = {"status": values["status"]} if values.get("status") else {}
    links = {
        name: meant.get(values[name])
        for name in ("merge_into", "branched_from", "into")
        if values.get(name)
    }
    return entries.dump_sorted_json({**facts, **links})
