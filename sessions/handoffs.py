"""The one writer of Handoff: what a worker tells the next in five sections, and who took it up. Accepted once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import QuerySet

from journal import entries
from journal.entries import Status
from journal.gists import parsed
from journal.ids import derived
from journal.order import earlier, is_of_a_command
from sessions.models import Session
from sessions.models_state import ByCodePoint, Handoff, text_at
from sessions.origin import Origin, Repeated

SECTIONS: Final = ("in_progress", "decided", "needs_attention", "can_wait", "waits_on")
BUDGET: Final = 4096  # bytes of the five sections; what is larger is kept, and said to be too much
ACCEPT_WITHIN_US: Final = 600 * 1_000_000


@dataclass(slots=True)
class Report:
    """A fact about a handoff that is already in the journal. What was written has a size, what was accepted has none.

    `waits_on` are the things it waits for, in the order of the section: `{"kind", "ref"}`, texts without a ref.
    """

    session: UUID
    key: str
    origin: Origin
    position: int
    size: int | None = None
    waits_on: list[dict[str, str]] = field(default_factory=list)


def bring(rows: Sequence[Handoff]) -> None:
    """Store handoffs of a bundle, as they stood in the book of origin. Expects the archive of their session."""
    Handoff.objects.bulk_create(rows, batch_size=500)


def identity(session: UUID, key: str) -> UUID:
    """The id of the handoff that `key` names in a session, whether or not it is stored yet."""
    return derived(session, "handoff", key)


def size_of(sections: Mapping[str, Any]) -> int:
    """Bytes of the five sections as compact JSON, those that are empty left out."""
    return len(orjson.dumps({name: sections[name] for name in SECTIONS if sections.get(name)}))


def write(origin: Origin, session: UUID, size: int, waits_on: list[dict[str, str]]) -> Handoff:
    """Write a handoff by command. The session's row must be locked. Raises Repeated."""
    key = f"{origin.source}/{origin.key}"
    return _told("handoff.written", Report(session, key, origin, 0, size, waits_on))


def accept(origin: Origin, handoff: Handoff) -> Handoff:
    """Take a handoff up by command; the caller has looked that nobody did. The session's row must be locked.

    Raises Repeated.
    """
    return _told("handoff.accepted", Report(handoff.session_id, handoff.key, origin, 0))


def _told(kind: str, fact: Report) -> Handoff:
    named = identity(fact.session, fact.key)
    facts = as_facts(fact.size, fact.waits_on)
    draft = fact.origin.draft(kind, facts=facts, session=fact.session, subject=named)
    appended = entries.append([draft], fact.origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    fact.position = appended.position
    return apply([fact])[named]


def as_facts(size: int | None, waits_on: list[dict[str, str]]) -> str:
    """What a handoff says in the journal's own words: its size, and what it waits for by kind and id."""
    if size is None:
        return "{}"
    return orjson.dumps({"size": size, "waits_on": waits_on}, option=orjson.OPT_SORT_KEYS).decode()


def apply(reports: Sequence[Report]) -> dict[UUID, Handoff]:
    """Fold facts into their handoffs: the first writing stands, and the first acceptance. Session rows must be locked.

    Only the latest handoff of a session is waited for, and until it is accepted.
    """
    rows = Handoff.objects.in_bulk([identity(fact.session, fact.key) for fact in reports])
    for fact in reports:
        named = identity(fact.session, fact.key)
        row = rows.get(named)
        if row is None:
            row = rows[named] = _new(fact)
        if fact.size is not None and _stands(fact.origin.latest_mark(fact.position), row.written_mark):
            row.written_mark, row.written_position = fact.origin.latest_mark(fact.position), fact.position
            row.size, row.waits_on, row.written_by_id = fact.size, fact.waits_on, fact.origin.agent
            row.accept_by_us = fact.origin.received_us + ACCEPT_WITHIN_US
        elif fact.size is None and earlier(fact.origin.mark, row.accepted_mark):
            row.accepted_mark, row.accepted_at_us = fact.origin.mark, fact.origin.received_us
            row.accepted_by_id = fact.origin.agent
        if row.accepted_mark:
            row.accept_by_us = None
    for _id, row in sorted(rows.items()):
        row.version += 1
        row.save()
    for session in sorted({row.session_id for row in rows.values()}):
        _wait_for_latest(session)
    return rows


def _wait_for_latest(session: UUID) -> None:
    """Wait for the latest handoff of a session, if nobody accepted it, and for no other."""
    written = Handoff.objects.filter(session=session, written_position__isnull=False)
    latest = written.order_by(ByCodePoint("written_mark").desc()).first()
    if latest is not None:
        written.filter(accept_by_us__isnull=False).exclude(id=latest.id).update(accept_by_us=None)
        if latest.accept_by_us is None and not latest.accepted_mark:  # another was written over that came after it
            Handoff.objects.filter(id=latest.id).update(accept_by_us=latest.created_at_us + ACCEPT_WITHIN_US)


def _stands(mark: str, other: str) -> bool:
    """True when the writing under `mark` takes the place of `other`: a command's does, else the first."""
    if not other or is_of_a_command(mark) != is_of_a_command(other):
        return not other or is_of_a_command(mark)
    return mark < other


def _new(fact: Report) -> Handoff:
    return Handoff(
        id=identity(fact.session, fact.key),
        project_id=fact.origin.project,
        session_id=fact.session,
        key=fact.key,
        opened_position=fact.position,
        created_at_us=fact.origin.received_us,
        version=0,
    )


def of_session(session: UUID | Session) -> "QuerySet[Any]":
    """The handoffs of a session that were written, each with the `text` of its entry and the names of both agents."""
    rows = Handoff.objects.filter(session=session, written_position__isnull=False)
    return rows.select_related("written_by", "accepted_by").annotate(text=text_at("written_position"))


def unaccepted(session: UUID | Session) -> Any | None:
    """The latest handoff of a session, with its text, unless somebody accepted it. One query."""
    row = of_session(session).order_by(ByCodePoint("written_mark").desc()).first()
    return None if row is None or row.accepted_mark else row


def told(row: Any) -> dict[str, Any]:
    """A handoff in an answer. Needs the text that `of_session` reads; sections that were erased are null.

    `waits_on` says of each thing its kind and id as resolved when it was written, and the text beside it.
    """
    body = parsed(row.text) if row.text is not None else None
    sections = {name: None if body is None else body.get(name) or [] for name in SECTIONS[:-1]}
    said = (body or {}).get("waits_on") or []
    waits = [
        {**thing, "text": said[n].get("text") if n < len(said) and isinstance(said[n], dict) else None}
        for n, thing in enumerate(row.waits_on)
    ]
    return {
        **brief(row),
        "session": str(row.session_id),
        **sections,
        "waits_on": waits,
        "written_by": row.written_by.name if row.written_by else None,
        "accepted_by": row.accepted_by.name if row.accepted_by else None,
        "created_at_us": row.created_at_us,
        "accepted_at_us": row.accepted_at_us,
    }


def brief(row: Handoff) -> dict[str, Any]:
    """A handoff in short: what a command answers. `over_budget` says that it is more than the next worker will read."""
    return {
        "id": str(row.id),
        "position": row.opened_position,
        "bytes": row.size,
        "over_budget": row.size > BUDGET,
        "accepted": bool(row.accepted_mark),
        "version": row.version,
    }
