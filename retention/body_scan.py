"""Reads which bodies belong to which class, in windows of the journal.

The dry run and the expiry read by the same function, so that one counts what the other removes.
"""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db import connection

from db import raw_sql
from erasure.row_scan import load_holds, parse_json_text
from erasure.word_match import WordMatcher, matches_value
from retention.retention_yaml import find_class

# Kinds whose bodies add no words of their own to the search.
_SEARCHED: Final = ("effect.planned", "effect.acknowledged", "effect.failed")
_ROWS: Final = (
    "SELECT entry.position, entry.kind, entry.received_us, CAST(entry.session AS text),"
    " CAST(entry.effect AS text), entry.source, entry.id, CAST(entry.subject AS text),"
    " effect.tool, {size}, {text}"
    " FROM journal_entry entry JOIN journal_body body ON body.entry_id = entry.position"
    " LEFT JOIN ledger_effect effect ON effect.id = entry.effect"
    " WHERE entry.position > %s AND entry.position <= %s"
    " AND body.entry_id > %s AND body.entry_id <= %s"
    " AND entry.project = %s AND entry.received_us <= %s ORDER BY entry.position"
)
_NEXT: Final = (
    "SELECT position FROM journal_entry WHERE position > %s AND position <= %s"
    " ORDER BY position LIMIT 1"
)
_SIZE: Final = {
    "postgresql": "octet_length(body.text)",
    "sqlite": "length(CAST(body.text AS blob))",
}


def find_window_end(after: int, end: int, size: int) -> int:
    """Return where a window of `size` positions ends, without those that hold no entry at first."""
    rows = raw_sql.fetch_rows(_NEXT, [after, end])
    return min(int(rows[0][0]) - 1 + size, end) if rows else end


@dataclass(frozen=True, slots=True)
class ClassedBody:
    """A body with its class, and whether a legal hold keeps it."""

    position: int
    kind: str
    received_us: int
    effect: str | None
    source: str
    event_id: str
    subject: str | None
    size: int  # bytes
    text_class: str
    is_held: bool

    @property
    def is_searched(self) -> bool:
        """Return True if a search by words finds its effect by this body."""
        return self.effect is not None and self.kind in _SEARCHED


@dataclass(frozen=True, slots=True)
class Holds:
    """The legal holds in force in a project."""

    sessions: frozenset[str]
    words: WordMatcher | None


def load_project_holds(project: UUID) -> Holds:
    """Return what holds keep now."""
    sessions, words = load_holds(project)
    return Holds(
        frozenset(raw_sql.uuid_as_cast_text(session) for session in sessions),
        WordMatcher(words) if words else None,
    )


def read_bodies(
    project: UUID, rules: dict[str, Any], holds: Holds, *, after: int, upto: int, received_us: int
) -> list[ClassedBody]:
    """Return the bodies of a window, received up to a moment. Texts are read only for holds."""
    query = _ROWS.format(
        size=_SIZE[connection.vendor], text="body.text" if holds.words is not None else "''"
    )
    rows = raw_sql.fetch_rows(
        query, [after, upto, after, upto, raw_sql.vendor_id(project), received_us]
    )
    classed = []
    for position, kind, received, session, effect, source, event, subject, tool, size, text in rows:
        is_held = session in holds.sessions or (
            holds.words is not None
            and matches_value(parse_json_text(text), holds.words.matches_text)
        )
        text_class = find_class(rules, kind, tool)
        classed.append(
            ClassedBody(
                position,
                kind,
                received,
                effect,
                source,
                event,
                subject,
                size,
                text_class,
                is_held,
            )
        )
    return classed
