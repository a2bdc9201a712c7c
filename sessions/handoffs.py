"""The one writer of Handoff: five sections for the next worker, accepted once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import QuerySet

from db.ids import derive_uuid
from db.row_changes import RowChange, write_row_changes
from journal import entries
from journal.entries import Origin
from journal.order_keys import is_command_mark, is_earlier_mark
from journal.summaries import parse_body
from sessions.models import CodePointOrder, Handoff, Session, select_body_text

HANDOFF_SECTIONS: Final = ("in_progress", "decided", "needs_attention", "can_wait", "waits_on")
HANDOFF_BUDGET_BYTES: Final = (
    4096  # bytes of the five sections; larger handoffs are stored and flagged
)
ACCEPT_WITHIN_US: Final = 600 * 1_000_000


@dataclass(slots=True)
class HandoffFact:
    """A fact about a handoff, already in the journal.

    A written handoff has a size, an acceptance has none. `waits_on` lists what it waits for, in the
    order of the section: `{"kind", "ref"}`, texts without a ref.
    """

    session: UUID
    key: str
    origin: Origin
    position: int
    size: int | None = None
    waits_on: list[dict[str, str]] = field(default_factory=list)


def import_handoffs(rows: Sequence[Handoff]) -> None:
    """Store handoffs of a bundle as their source had them, in their archive."""
    Handoff.objects.bulk_create(rows, batch_size=500)


def restore_handoffs(changes: Sequence[RowChange]) -> None:
    """Restore handoffs to what the journal gives (manage.py rebuild)."""
    write_row_changes(Handoff, changes)


def derive_handoff_id(session: UUID, key: str) -> UUID:
    """Derive the id of the handoff that `key` names in a session, stored or not."""
    return derive_uuid(session, "handoff", key)


def measure_handoff(sections: Mapping[str, Any]) -> int:
    """Return the bytes of the five sections as compact JSON, without empty sections."""
    return len(
        orjson.dumps({name: sections[name] for name in HANDOFF_SECTIONS if sections.get(name)})
    )


def save_handoff(
    origin: Origin, session: UUID, size: int, waits_on: list[dict[str, str]]
) -> Handoff:
    """Write a handoff by command. The session's row must be locked. Raises RepeatedKey."""
    key = f"{origin.source}/{origin.key}"
    return _append_and_apply(
        "handoff.written", HandoffFact(session, key, origin, 0, size, waits_on)
    )


def save_handoff_acceptance(origin: Origin, handoff: Handoff) -> Handoff:
    """Accept a handoff by command.

    The caller has checked that it is not accepted. The session's row must be locked. Raises
    RepeatedKey.
    """
    return _append_and_apply(
        "handoff.accepted", HandoffFact(handoff.session_id, handoff.key, origin, 0)
    )


def _append_and_apply(kind: str, fact: HandoffFact) -> Handoff:
    identifier = derive_handoff_id(fact.session, fact.key)
    facts = dump_handoff_facts(fact.size, fact.waits_on)
    draft = fact.origin.draft(kind, facts=facts, session=fact.session, subject=identifier)
    fact.position = fact.origin.append_draft(draft)
    return apply_handoff_facts([fact])[identifier]


def dump_handoff_facts(size: int | None, waits_on: list[dict[str, str]]) -> str:
    """Return a handoff's facts for the journal: size, and what it waits for."""
    if size is None:
        return "{}"
    return entries.dump_sorted_json({"size": size, "waits_on": waits_on})


def apply_handoff_facts(reports: Sequence[HandoffFact]) -> dict[UUID, Handoff]:
    """Fold facts into their handoffs; first writing and first acceptance count.

    Only a session's latest handoff is due, and only until it is accepted. The session rows must be
    locked.
    """
    rows = Handoff.objects.in_bulk([derive_handoff_id(fact.session, fact.key) for fact in reports])
    for fact in reports:
        identifier = derive_handoff_id(fact.session, fact.key)
        rows[identifier] = fold_handoff_fact(rows.get(identifier), fact)
    for _id, row in sorted(rows.items()):
        row.version += 1
        row.save()
    for session in sorted({row.session_id for row in rows.values()}):
        _set_acceptance_deadline(session)
    return rows


def fold_handoff_fact(stored: Handoff | None, fact: HandoffFact) -> Handoff:
    """Fold one fact into a handoff, which it may be the first to name. Pure."""
    row = _build_row(fact) if stored is None else stored
    mark = fact.origin.latest_mark(fact.position)
    if fact.size is not None and _replaces(mark, row.written_mark):
        row.written_mark, row.written_position = mark, fact.position
        row.size, row.waits_on, row.written_by_id = fact.size, fact.waits_on, fact.origin.agent
        row.accept_by_us = fact.origin.received_us + ACCEPT_WITHIN_US
    elif fact.size is None and is_earlier_mark(fact.origin.mark, row.accepted_mark):
        row.accepted_mark, row.accepted_at_us = fact.origin.mark, fact.origin.received_us
        row.accepted_by_id = fact.origin.agent
    if row.accepted_mark:
        row.accept_by_us = None
    return row


def settle_acceptance_deadlines(rows: Iterable[Handoff]) -> None:
    """Set the deadlines of all handoffs of a session as `_set_acceptance_deadline`. Pure."""
    written = [row for row in rows if row.written_position is not None]
    latest = max(written, key=attrgetter("written_mark"), default=None)
    for row in written:
        if row is not latest:
            row.accept_by_us = None
        elif row.accept_by_us is None and not row.accepted_mark:
            row.accept_by_us = row.created_at_us + ACCEPT_WITHIN_US


def _set_acceptance_deadline(session: UUID) -> None:
    """Set a deadline only for the latest handoff of a session, unless accepted."""
    written = Handoff.objects.filter(session=session, written_position__isnull=False)
    latest = written.order_by(CodePointOrder("written_mark").desc()).first()
    if latest is not None:
        written.filter(accept_by_us__isnull=False).exclude(id=latest.id).update(accept_by_us=None)
        # A later handoff cleared this deadline, and was then rewritten under an earlier mark.
        if latest.accept_by_us is None and not latest.accepted_mark:
            Handoff.objects.filter(id=latest.id).update(
                accept_by_us=latest.created_at_us + ACCEPT_WITHIN_US
            )


def _replaces(mark: str, other: str) -> bool:
    """Return True when the writing under `mark` replaces the one under `other`.

    A command replaces a report; otherwise the first counts.
    """
    if not other or is_command_mark(mark) != is_command_mark(other):
        return not other or is_command_mark(mark)
    return mark < other


def _build_row(fact: HandoffFact) -> Handoff:
    return Handoff(
        id=derive_handoff_id(fact.session, fact.key),
        project_id=fact.origin.project,
        session_id=fact.session,
        key=fact.key,
        opened_position=fact.position,
        created_at_us=fact.origin.received_us,
        version=0,
    )


def query_handoffs(session: UUID | Session) -> "QuerySet[Any]":
    """Return a session's written handoffs with `text` and both agents."""
    rows = Handoff.objects.filter(session=session, written_position__isnull=False)
    return rows.select_related("written_by", "accepted_by").annotate(
        text=select_body_text("written_position")
    )


def load_unaccepted_handoff(session: UUID | Session) -> Any | None:
    """Return a session's latest handoff with its text, unless accepted. One query."""
    row = query_handoffs(session).order_by(CodePointOrder("written_mark").desc()).first()
    return None if row is None or row.accepted_mark else row


def handoff_to_json(row: Any) -> dict[str, Any]:
    """Convert a handoff to JSON.

    Needs the text that `query_handoffs` reads; erased sections are null. `waits_on` gives each
    thing's kind and id as resolved when the handoff was written, and its text.
    """
    body = parse_body(row.text) if row.text is not None else None
    sections = {
        name: None if body is None else body.get(name) or [] for name in HANDOFF_SECTIONS[:-1]
    }
    texts = (body or {}).get("waits_on") or []
    waits_on = [
        {
            **thing,
            "text": texts[index].get("text")
            if index < len(texts) and isinstance(texts[index], dict)
            else None,
        }
        for index, thing in enumerate(row.waits_on)
    ]
    return {
        **summarize_handoff(row),
        "session": str(row.session_id),
        **sections,
        "waits_on": waits_on,
        "written_by": row.written_by.name if row.written_by else None,
        "accepted_by": row.accepted_by.name if row.accepted_by else None,
        "created_at_us": row.created_at_us,
        "accepted_at_us": row.accepted_at_us,
    }


def summarize_handoff(row: Handoff) -> dict[str, Any]:
    """Return the short form of a handoff, which commands answer.

    `over_budget` means that the handoff is longer than the next worker will read.
    """
    return {
        "id": str(row.id),
        "position": row.opened_position,
        "bytes": row.size,
        "over_budget": row.size > HANDOFF_BUDGET_BYTES,
        "accepted": bool(row.accepted_mark),
        "version": row.version,
    }
