"""The one writer of Checkpoint: session state in the agent's words.

The latest five per session are kept.

Checkpoints decide nothing. Open effects, their verdicts, and finished tasks and items have rows of
their own, so that losing every checkpoint loses only time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from journal import entries
from journal.entries import Status
from journal.gists import parsed
from journal.ids import derived
from sessions.models import Session
from sessions.models_state import ByCodePoint, Checkpoint, text_at
from sessions.origin import Origin, Repeated

KEPT: Final = 5
LARGEST: Final = 64 * 1024  # bytes of a checkpoint by command


@dataclass(slots=True)
class Report:
    """A checkpoint, already in the journal. `size` is in bytes of canonical JSON."""

    session: UUID
    origin: Origin
    position: int
    size: int
    values: Mapping[str, Any]


def bring(rows: Sequence[Checkpoint]) -> None:
    """Store checkpoints from a bundle, as the source journal had them.

    Expects the archive of their session.
    """
    Checkpoint.objects.bulk_create(rows, batch_size=500)


def identity(session: UUID, origin: Origin) -> UUID:
    """Derive the id of the checkpoint that a fact records."""
    return derived(session, "checkpoint", origin.source, origin.key)


def write(origin: Origin, session: UUID, size: int, values: Mapping[str, Any]) -> Checkpoint:
    """Store a checkpoint by command: summary, cache_keys, cursor, pins, state.

    The session's row must be locked. Raises Repeated.
    """
    identifier = identity(session, origin)
    draft = origin.draft("checkpoint.written", session=session, subject=identifier)
    appended = entries.append([draft], origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    keep([Report(session, origin, appended.position, size, values)])
    return Checkpoint.objects.get(id=identifier)


def keep(reports: Sequence[Report]) -> None:
    """Store checkpoints and delete all but the latest five of each session.

    Order keys decide which are latest, never the order of arrival.
    """
    if not reports:
        return
    new = {row.id: row for row in map(_build_row, reports)}
    marks_by_session: dict[UUID, list[tuple[str, UUID]]] = {}
    sessions = {fact.session for fact in reports}
    for session, mark, row_id in Checkpoint.objects.filter(session__in=sessions).values_list(
        "session", "mark", "id"
    ):
        marks_by_session.setdefault(session, []).append((mark, row_id))
    for row in new.values():
        marks_by_session.setdefault(row.session_id, []).append((row.mark, row.id))
    surplus = {
        row_id for marks in marks_by_session.values() for _mark, row_id in sorted(marks)[:-KEPT]
    }
    Checkpoint.objects.bulk_create(
        [row for row in sorted(new.values(), key=lambda row: row.id) if row.id not in surplus]
    )
    if surplus - new.keys():
        Checkpoint.objects.filter(id__in=surplus - new.keys()).delete()


def _build_row(fact: Report) -> Checkpoint:
    return Checkpoint(
        id=identity(fact.session, fact.origin),
        project_id=fact.origin.project,
        session_id=fact.session,
        cache_keys=fact.values.get("cache_keys") or [],
        cursor=fact.values.get("cursor") or "",
        pins=fact.values.get("pins") or {},
        size=fact.size,
        mark=fact.origin.latest_mark(fact.position),
        opened_position=fact.position,
        created_at_us=fact.origin.received_us,
    )


def kept(session: UUID | Session) -> list[Any]:
    """Return a session's kept checkpoints with `text`, latest first. One query."""
    rows = Checkpoint.objects.filter(session=session).annotate(text=text_at("opened_position"))
    return list(rows.order_by(ByCodePoint("mark").desc())[:KEPT])


def latest(session: UUID | Session) -> Any | None:
    """Return the latest checkpoint of a session with its `text`, or None. One query."""
    rows = Checkpoint.objects.filter(session=session).annotate(text=text_at("opened_position"))
    return rows.order_by(ByCodePoint("mark").desc()).first()


def told(row: Any, *, whole: bool = True) -> dict[str, Any]:
    """Convert a checkpoint to JSON, with its state if `whole`.

    Needs `text`, which is None once erased.
    """
    body = parsed(row.text) if row.text is not None else {}
    document = {
        "id": str(row.id),
        "position": row.opened_position,
        "session": str(row.session_id),
        "summary": body.get("summary"),
        "cursor": row.cursor or None,
        "cache_keys": row.cache_keys,
        "pins": row.pins,
        "bytes": row.size,
        "erased": row.text is None,
        "created_at_us": row.created_at_us,
    }
    return document | ({"state": body.get("state")} if whole else {})
