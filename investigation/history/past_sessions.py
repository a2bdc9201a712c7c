"""Sessions as of a cut: status, times and links from entries' facts, text from their bodies."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Count, OuterRef, Subquery

from accounts.models import Repository
from db.text import to_column_text
from display import entry_bodies
from investigation.history import past_entries as history_entries
from investigation.history.moment import JournalCut
from investigation.history.past_entries import PastEntry
from journal import summaries
from journal.entries import Origin
from journal.models import Entry
from journal.order_keys import SEPARATOR, is_command_mark, is_earlier_mark, make_latest_key
from ledger.models import Effect
from sessions import sessions as sessions_sessions
from sessions.lookup import resolve_session_references
from sessions.models import ENDED, Session
from sessions.sessions import SessionFact

_STATUS_OF_KIND: Final = {
    "session.waiting": "waiting",
    "session.resumed": "running",
    "session.suspended": "suspended",
}
_RELATED: Final = ("agent", "owner", "on_behalf_of", "repository", "parent")
_NAMING: Final = ("session.started", *sessions_sessions.FIELD_CHANGE_KINDS)
MAX_TEXT_ENTRIES: Final = (
    500  # Newest entries whose bodies are read for a session's title and cursor.
)
_COLUMNS_BEFORE_START: Final[dict[str, Any]] = {
    **dict.fromkeys(("started_mark", "branch", "title"), ""),
    **dict.fromkeys(("started_at_us", "parent_id", "owner_id", "on_behalf_of_id", "repository_id")),
    "mode": "reported",
    "labels": {},
}


class PastLease(NamedTuple):
    """A session's lease in the journal, which has no heartbeats.

    `released_us` is None while it is held.
    """

    epoch: int
    acquired_us: int
    released_us: int | None


@dataclass(slots=True)
class SessionAsOf:
    """A session as of a cut (not saved), its lease, and the columns erased since."""

    session: Session
    lease: PastLease | None = None
    lost: set[str] = field(default_factory=set)


def rebuild_sessions(project: UUID, ids: Iterable[UUID], cut: JournalCut) -> dict[UUID, Session]:
    """Return the sessions of `ids` as of `cut`, not saved. Later ones are absent."""
    return {
        identity: past.session
        for identity, past in rebuild_sessions_with_leases(project, ids, cut).items()
    }


def rebuild_sessions_with_leases(
    project: UUID, ids: Iterable[UUID], cut: JournalCut
) -> dict[UUID, SessionAsOf]:
    """Return the sessions with their leases and erased columns."""
    stored: dict[UUID, Session] = {}
    for part in history_entries.split_ids(ids):
        for row in Session.objects.filter(id__in=part).select_related(*_RELATED):
            if row.project_id == project and row.opened_position <= cut.position:
                stored[row.id] = row
    entries_by_session: dict[UUID | None, list[PastEntry]] = {}
    for entry in history_entries.load_session_entries(stored, cut.position):
        entries_by_session.setdefault(entry.session, []).append(entry)
    counts = dict(
        Effect.objects.filter(session__in=stored, opened_position__lte=cut.position)
        .values_list("session")
        .annotate(number=Count("id"))
        .order_by()
    )
    last_received = load_last_received(stored, cut)
    later_entries = (
        Entry.objects.filter(session__in=stored, position__gt=cut.position)
        .exclude(lane="claim")
        .order_by()
    )
    changed_text_ids = set(
        later_entries.filter(kind__in=_NAMING).values_list("session", flat=True).distinct()
    )
    past_sessions = {}
    for key, row in stored.items():
        past = _rebuild_session(row, entries_by_session.get(key, []))
        past.session.effect_count = counts.get(key, 0)
        past.session.seen_at_us = last_received.get(key) or row.created_at_us
        if key in changed_text_ids:
            _set_text(past, row, cut)
            _remove_later_labels(past, row, cut)
        past_sessions[key] = past
    return past_sessions


def load_last_received(sessions: Iterable[UUID], cut: JournalCut) -> dict[UUID, int | None]:
    """Return when the last entry from an agent was received for each session, by the cut.

    The journal has no heartbeats, so the last heartbeat by then is unknown. One query for each
    part of `split_ids`.
    """
    last_entry = Entry.objects.filter(
        session=OuterRef("pk"), position__lte=cut.position, lane__in=_AGENT_LANES
    )
    received_by_id: dict[UUID, int | None] = {}
    for part in history_entries.split_ids(sessions):
        newest = Subquery(last_entry.order_by("-position").values("received_us")[:1])
        received_by_id |= dict(Session.objects.filter(pk__in=part).values_list("pk", newest))
    return received_by_id


_AGENT_LANES: Final = ("command", "evidence")


@dataclass(slots=True)
class _Folded:
    """The folded facts of a session.

    `start` and `word` are the entries that describe it and set its status.
    """

    start: PastEntry | None = None
    word: PastEntry | None = None
    status: str = "running"
    status_mark: str = ""
    ended_at_us: int | None = None
    resumes: int = 0
    lease: PastLease | None = None


def _fold(entries: Iterable[PastEntry]) -> _Folded:
    """Fold a session's entries like sessions/sessions.py."""
    folded = _Folded()
    for fact in entries:
        if fact.kind.startswith("lease."):
            folded.lease = _apply_lease_entry(folded.lease, fact) or folded.lease
            continue
        if fact.is_ours:
            folded.resumes += fact.kind == "session.resumed"
            continue
        status = (
            fact.facts.get("status")
            if fact.kind == "session.changed"
            else _STATUS_OF_KIND.get(fact.kind)
        )
        latest = make_latest_key(
            fact.lane, fact.position, fact.producer_seq, fact.source, fact.event_id
        )
        if fact.kind == "session.started" and is_earlier_mark(
            fact.mark, folded.start.mark if folded.start else ""
        ):
            folded.start = fact
        elif fact.kind == "session.ended" and (
            folded.status not in ENDED or is_earlier_mark(fact.mark, folded.status_mark)
        ):
            folded.status, folded.status_mark, folded.ended_at_us = (
                fact.facts["status"],
                fact.mark,
                fact.told_us,
            )
            folded.word = None
        elif status and folded.status not in ENDED and latest > folded.status_mark:
            folded.status, folded.status_mark, folded.word = status, latest, fact
    return folded


def _apply_lease_entry(held: PastLease | None, fact: PastEntry) -> PastLease | None:
    """Return the session's lease after an entry, ignoring leases on tasks and resources."""
    epoch = fact.facts.get("epoch")
    if fact.lane == "evidence" or epoch is None:
        return None
    if fact.kind == "lease.acquired":
        return (
            PastLease(epoch, fact.received_us, None)
            if fact.facts.get("kind") == "session"
            else None
        )
    if held is None or held.epoch != epoch or fact.kind not in ("lease.released", "lease.lost"):
        return None
    return PastLease(epoch, held.acquired_us, fact.received_us)


def _rebuild_session(stored: Session, entries: list[PastEntry]) -> SessionAsOf:
    folded = _fold(entries)
    session = copy.copy(stored)
    values: dict[str, Any] = {
        "status": folded.status,
        "status_mark": folded.status_mark,
        "ended_at_us": folded.ended_at_us,
        "resumes": folded.resumes,
        "waiting_on": "",
    }
    lost: set[str] = set()
    start = folded.start
    if start is None and stored.started_mark:
        values |= _COLUMNS_BEFORE_START
    elif start is not None and start.mark != stored.started_mark:
        values |= {
            "started_mark": start.mark,
            "started_at_us": start.told_us,
            **_load_start_columns(stored, start, lost),
        }
    agent = start.agent if start is not None else _find_first_agent(stored)
    if agent is not None:
        values["agent_id"] = agent
    if folded.word is not None and folded.status_mark == stored.status_mark:
        values["waiting_on"] = stored.waiting_on
    # Older status entries do not say what the session waits for.
    elif folded.word is not None and folded.word.kind == "session.changed":
        values["waiting_on"] = (
            _load_body(stored, folded.word.position, "waiting_on", lost).get("waiting_on") or ""
        )
    for name, value in values.items():
        setattr(session, name, value)
    return SessionAsOf(session, folded.lease, lost)


def _find_first_agent(stored: Session) -> UUID | None:
    """Return the agent of the first entry, which owns a session until its start is reported."""
    actor = (
        Entry.objects.filter(position=stored.opened_position)
        .values_list("actor", flat=True)
        .first()
        or ""
    )
    return UUID(hex=actor[6:]) if actor.startswith("agent:") else None


def _load_start_columns(stored: Session, start: PastEntry, lost: set[str]) -> dict[str, Any]:
    """Return the columns of a start that another start has replaced since."""
    facts = start.facts
    body = _load_body(stored, start.position, "title", lost)
    on_behalf_of_id = (
        User.objects.filter(person__pseudonym=facts.get("on_behalf_of"))
        .values_list("id", flat=True)
        .first()
    )
    owner = sessions_sessions.find_member(stored.project_id, body.get("owner"))
    repository = Repository.objects.filter(
        project=stored.project_id, name=body.get("repository") or ""
    ).first()
    return {
        "mode": facts.get("mode", "reported"),
        "parent_id": UUID(facts["parent"])
        if facts.get("parent") not in (None, str(stored.id))
        else None,
        "on_behalf_of_id": on_behalf_of_id,
        "owner_id": owner.pk if owner is not None else None,
        "repository_id": repository.id if repository is not None else None,
        "title": to_column_text(body.get("title") or ""),
        "branch": body.get("branch") or "",
        "labels": body.get("labels") or {},
    }


def _load_body(stored: Session, position: int, column: str, lost: set[str]) -> dict[str, Any]:
    text = entry_bodies.load_body_texts(stored.project_id, [position]).get(position)
    if text is None:
        lost.add(column)
        return {}
    return summaries.parse_body(text)


# Text from later entries: title, cursor, branches.


def _set_text(past: SessionAsOf, stored: Session, cut: JournalCut) -> None:
    """Set the fields of the field history (sessions/sessions.py) to their past values."""
    marks = _register_marks(stored)
    changed_names = {
        name
        for name, (mark, _value) in marks
        if _find_position(stored.project_id, mark) > cut.position
    }
    # Values that were set by the cut are still current, whatever start came since.
    for name in {name for name, _said in marks} - changed_names:
        setattr(past.session, _column_name(name), getattr(stored, _column_name(name)))
    if not changed_names:
        return
    past_values = copy.copy(past.session)
    past_values.field_history = {}
    for name in (*sessions_sessions.LATEST_WINS_FIELDS, *sessions_sessions.FIRST_WINS_FIELDS):
        setattr(past_values, _column_name(name), None if name in _LINKS else "")
    past_values.title = (
        sessions_sessions.first_session_title(stored)
        if past.session.started_mark == stored.started_mark
        else past_values.title
    )
    past_values.title = past_values.title if past.session.started_mark else ""
    opening_title = past_values.title
    entries = Entry.objects.filter(session=stored.id, position__lte=cut.position)
    newest = entries.filter(kind__in=_NAMING, lane__in=_AGENT_LANES).order_by("-position")
    newest_entries = list(newest[:MAX_TEXT_ENTRIES])
    texts = entry_bodies.load_body_texts(
        stored.project_id, [entry.position for entry in newest_entries]
    )
    for entry in reversed(newest_entries):
        if entry.position not in texts:
            past.lost |= changed_names
            continue
        fact = _build_session_fact(stored.id, entry, summaries.parse_body(texts[entry.position]))
        linked_ids = resolve_session_references(
            stored.project_id, sessions_sessions.collect_session_references(fact.values)
        )
        sessions_sessions.fold_field_fact(
            past_values, fact, {name: value for name, (value, _key) in linked_ids.items()}
        )
    sessions_sessions.set_session_fields(past_values, opening_title)
    for name in changed_names:
        setattr(past.session, _column_name(name), getattr(past_values, _column_name(name)))


def _remove_later_labels(past: SessionAsOf, stored: Session, cut: JournalCut) -> None:
    """Remove the labels that were added since (see sessions.open_session)."""
    labelling_entries = Entry.objects.filter(
        session=stored.id, kind__in=("session.changed", "session.described"), facts=_LABELLED
    ).order_by("position")
    positions = list(labelling_entries.values_list("position", flat=True))
    if not positions or positions[-1] <= cut.position or past.session.labels != stored.labels:
        return
    start = (
        Entry.objects.filter(session=stored.id, kind="session.started", lane="command")
        .order_by("position")
        .first()
    )
    label_positions = [
        *([start.position] if start is not None else []),
        *(label_position for label_position in positions if label_position <= cut.position),
    ]
    texts = entry_bodies.load_body_texts(stored.project_id, label_positions)
    labels: dict[str, str] = {}
    for position in label_positions:
        labels = {**(summaries.parse_body(texts.get(position, "")).get("labels") or {}), **labels}
    past.session.labels = labels
    if len(texts) < len(label_positions):
        past.lost.add("labels")


_LABELLED: Final = '{"labelled":true}'
_LINKS: Final = ("merge_into", "branched_from", "merged_into")


def _column_name(name: str) -> str:
    return f"{name}_id" if name in _LINKS else name


def _register_marks(stored: Session) -> list[tuple[str, tuple[str, Any]]]:
    return [
        (name, tuple(mark_value))
        for name, mark_value in stored.field_history.items()
        if name in (*sessions_sessions.LATEST_WINS_FIELDS, *sessions_sessions.FIRST_WINS_FIELDS)
    ]


def _find_position(project: UUID, mark: str) -> int:
    """Return the position of the entry with an order key."""
    rank, second, source, event_id = mark.split(SEPARATOR)
    if is_command_mark(mark) and rank == "2":
        return int(second)
    entry = Entry.objects.filter(project=project, source=source, event_id=event_id)
    return entry.values_list("position", flat=True).first() or 0


def _build_session_fact(session: UUID, entry: Entry, values: dict[str, Any]) -> SessionFact:
    """Return an entry as a fact about a session; `values` are its body."""
    origin = Origin(
        project=entry.project,
        agent=UUID(int=0),  # The fold of a fact does not read it.
        source=entry.source,
        actor=entry.actor,
        lane="command" if entry.lane == "command" else "evidence",
        key=entry.event_id,
        text="",
        received_us=entry.received_us,
        occurred_us=entry.occurred_us,
        producer_seq=entry.producer_seq,
    )
    return SessionFact(session, "", origin, entry.kind, entry.position, values)
