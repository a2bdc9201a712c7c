"""Last-writer-wins fields of a session, with their order keys. Writes nothing.

`Session.field_history` holds, by name, the order key and value that count: of `LATEST_WINS_FIELDS`
the latest, of `FIRST_WINS_FIELDS` the first. Where the title was changed, `first_title` holds the
title that the opening gave.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol
from uuid import UUID

from db.text import to_column_text
from journal.entries import Origin
from journal.order_keys import is_earlier_mark
from sessions.models import Session

FIELD_CHANGE_KINDS: Final = frozenset(
    {"session.changed", "session.branched", "session.merged", "checkpoint.written"}
)
LATEST_WINS_FIELDS: Final = ("title", "cursor", "merge_into", "merge_intent")
FIRST_WINS_FIELDS: Final = ("branched_from", "merged_into")
_LINKS: Final = ("merge_into", "branched_from", "merged_into")  # named by reference, kept by id


class SessionFactLike(Protocol):
    """A fact about a session, already in the journal (see sessions.SessionFact)."""

    origin: Origin
    kind: str
    position: int
    values: dict[str, Any]


def collect_session_references(values: Mapping[str, Any]) -> set[str]:
    """Return the other sessions, by id or key, that a session's fact names."""
    return {values[name] for name in ("parent", *_LINKS, "into") if values.get(name)}


def fold_field_fact(row: Session, fact: SessionFactLike, meant: Mapping[str, UUID | None]) -> None:
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
