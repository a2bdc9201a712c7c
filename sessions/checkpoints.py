"""The one writer of Checkpoint: where a session stood, in its own words; the latest five of each are kept.

Nothing is decided by a checkpoint. Which effects are open, what may be done with them and which tasks and items are
done is told by their own rows, so that the loss of every checkpoint loses nothing but time.
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
LARGEST: Final = 64 * 1024  # bytes of one, by command


@dataclass(slots=True)
class Report:
    """A checkpoint whose entry is in the journal. `size` is in bytes of canonical JSON."""

    session: UUID
    origin: Origin
    position: int
    size: int
    values: Mapping[str, Any]


def bring(rows: Sequence[Checkpoint]) -> None:
    """Store checkpoints of a bundle, as they stood in the book of origin. Expects the archive of their session."""
    Checkpoint.objects.bulk_create(rows, batch_size=500)


def identity(session: UUID, origin: Origin) -> UUID:
    """The id of the checkpoint that this fact is."""
    return derived(session, "checkpoint", origin.source, origin.key)


def write(origin: Origin, session: UUID, size: int, values: Mapping[str, Any]) -> Checkpoint:
    """Keep a checkpoint by command: summary, cache_keys, cursor, pins, state. The session's row must be locked.

    Raises Repeated.
    """
    named = identity(session, origin)
    draft = origin.draft("checkpoint.written", session=session, subject=named)
    appended = entries.append([draft], origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    keep([Report(session, origin, appended.position, size, values)])
    return Checkpoint.objects.get(id=named)


def keep(reports: Sequence[Report]) -> None:
    """Store checkpoints and let go of all but the latest five of each session, by order key and never by arrival."""
    if not reports:
        return
    new = {row.id: row for row in map(_row, reports)}
    standing: dict[UUID, list[tuple[str, UUID]]] = {}
    sessions = {fact.session for fact in reports}
    for session, mark, known in Checkpoint.objects.filter(session__in=sessions).values_list("session", "mark", "id"):
        standing.setdefault(session, []).append((mark, known))
    for row in new.values():
        standing.setdefault(row.session_id, []).append((row.mark, row.id))
    gone = {known for marks in standing.values() for _mark, known in sorted(marks)[:-KEPT]}
    Checkpoint.objects.bulk_create([row for row in sorted(new.values(), key=lambda row: row.id) if row.id not in gone])
    if gone - new.keys():
        Checkpoint.objects.filter(id__in=gone - new.keys()).delete()


def _row(fact: Report) -> Checkpoint:
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
    """The checkpoints of a session that are kept, the latest first, each with its `text`. One query."""
    rows = Checkpoint.objects.filter(session=session).annotate(text=text_at("opened_position"))
    return list(rows.order_by(ByCodePoint("mark").desc())[:KEPT])


def latest(session: UUID | Session) -> Any | None:
    """The latest checkpoint of a session, with its `text`; None where there is none. One query."""
    rows = Checkpoint.objects.filter(session=session).annotate(text=text_at("opened_position"))
    return rows.order_by(ByCodePoint("mark").desc()).first()


def told(row: Any, *, whole: bool = True) -> dict[str, Any]:
    """A checkpoint in an answer; without its state unless `whole`. Needs `text`, which is None once erased."""
    body = parsed(row.text) if row.text is not None else {}
    found = {
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
    return found | ({"state": body.get("state")} if whole else {})
