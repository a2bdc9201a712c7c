"""The one writer of Checkpoint: session state in the agent's words.

The latest five per session are kept.

Checkpoints decide nothing. Open effects, their verdicts, and finished tasks and items have rows of
their own, so that losing every checkpoint loses only time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from db.ids import derive_uuid
from db.row_changes import RowChange, write_row_changes
from journal.entries import Origin
from journal.summaries import parse_body
from sessions.models import Checkpoint, CodePointOrder, Session, select_body_text

KEPT_CHECKPOINTS: Final = 5
MAX_CHECKPOINT_BYTES: Final = 64 * 1024  # bytes of a checkpoint by command


@dataclass(slots=True)
class CheckpointFact:
    """A checkpoint, already in the journal. `size` is in bytes of canonical JSON."""

    session: UUID
    origin: Origin
    position: int
    size: int
    values: Mapping[str, Any]


def import_checkpoints(rows: Sequence[Checkpoint]) -> None:
    """Store checkpoints of a bundle as their source had them, in their archive."""
    Checkpoint.objects.bulk_create(rows, batch_size=500)


def restore_checkpoints(changes: Sequence[RowChange]) -> None:
    """Restore checkpoints to what the journal gives (manage.py rebuild)."""
    write_row_changes(Checkpoint, changes)


def derive_checkpoint_id(session: UUID, origin: Origin) -> UUID:
    """Derive the id of the checkpoint that a fact records."""
    return derive_uuid(session, "checkpoint", origin.source, origin.key)


def save_checkpoint(
    origin: Origin, session: UUID, size: int, values: Mapping[str, Any]
) -> Checkpoint:
    """Store a checkpoint by command: summary, cache_keys, cursor, pins, state.

    The session's row must be locked. Raises RepeatedKey.
    """
    identifier = derive_checkpoint_id(session, origin)
    draft = origin.draft("checkpoint.written", session=session, subject=identifier)
    position = origin.append_draft(draft)
    apply_checkpoint_facts([CheckpointFact(session, origin, position, size, values)])
    return Checkpoint.objects.get(id=identifier)


def apply_checkpoint_facts(reports: Sequence[CheckpointFact]) -> None:
    """Store checkpoints and delete all but the latest five of each session.

    Order keys decide which are latest, never the order of arrival.
    """
    if not reports:
        return
    new = {row.id: row for row in map(build_checkpoint, reports)}
    marks_by_session: dict[UUID, list[tuple[str, UUID]]] = {}
    sessions = {fact.session for fact in reports}
    for session, mark, row_id in Checkpoint.objects.filter(session__in=sessions).values_list(
        "session", "mark", "id"
    ):
        marks_by_session.setdefault(session, []).append((mark, row_id))
    for row in new.values():
        marks_by_session.setdefault(row.session_id, []).append((row.mark, row.id))
    surplus = {
        row_id
        for marks in marks_by_session.values()
        for _mark, row_id in sorted(marks)[:-KEPT_CHECKPOINTS]
    }
    Checkpoint.objects.bulk_create(
        [row for row in sorted(new.values(), key=lambda row: row.id) if row.id not in surplus]
    )
    if surplus - new.keys():
        Checkpoint.objects.filter(id__in=surplus - new.keys()).delete()


def build_checkpoint(fact: CheckpointFact) -> Checkpoint:
    """Return the checkpoint that a fact records."""
    return Checkpoint(
        id=derive_checkpoint_id(fact.session, fact.origin),
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


def load_checkpoints(session: UUID | Session) -> list[Any]:
    """Return a session's kept checkpoints with `text`, latest first. One query."""
    rows = Checkpoint.objects.filter(session=session).annotate(
        text=select_body_text("opened_position")
    )
    return list(rows.order_by(CodePointOrder("mark").desc())[:KEPT_CHECKPOINTS])


def load_latest_checkpoint(session: UUID | Session) -> Any | None:
    """Return the latest checkpoint of a session with its `text`, or None. One query."""
    rows = Checkpoint.objects.filter(session=session).annotate(
        text=select_body_text("opened_position")
    )
    return rows.order_by(CodePointOrder("mark").desc()).first()


def checkpoint_to_json(row: Any, *, with_state: bool = True) -> dict[str, Any]:
    """Convert a checkpoint with its `text`, None once erased, to JSON."""
    body = parse_body(row.text) if row.text is not None else {}
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
    return document | ({"state": body.get("state")} if with_state else {})
