"""The one writer of Erasure: deletes bodies with their salts, and records it."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import orjson
from django.db import IntegrityError, transaction

from db.row_changes import RowChange, write_row_changes
from journal import entries, text_caches
from journal.imported_entries import imported_actor
from journal.models import Entry, Erasure

IMPORTED_ACTOR: Final = imported_actor("origin")  # of what another installation erased


class NothingToErase(Exception):
    """No entry with a body at that position in this project; it may be erased already."""


def import_erasures(rows: Sequence[Erasure]) -> None:
    """Import erasures of another journal, whose entries are here without bodies."""
    Erasure.objects.bulk_create(rows, batch_size=500)


def restore_erasures(changes: Sequence[RowChange]) -> None:
    """Restore what rows say of erased bodies to what the journal gives (manage.py rebuild)."""
    write_row_changes(Erasure, changes)


def expire_bodies(
    project: UUID, positions: Sequence[int], *, expired_by: int, reason: str, now_us: int
) -> None:
    """Delete bodies and salts that `retention.expired` at `expired_by` names, in one transaction.

    Each leaves a row of Erasure with the class as its reason. Entries and commitments stay.
    """
    Erasure.objects.bulk_create(
        [
            Erasure(
                entry_id=position,
                project=project,
                reason=reason,
                actor=entries.SYSTEM_SOURCE,
                erased_at_us=now_us,
                expired_by=expired_by,
            )
            for position in positions
        ],
        batch_size=100,
    )
    entries.delete_bodies(positions)


def erase_body(project: UUID, position: int, *, reason: str, actor: str, now_us: int) -> Erasure:
    """Delete the body and salt of the entry at `position`; entry and commitment stay.

    The database requires this order: the Erasure row, then the deletion, then `erasure.executed`.
    Must run inside a transaction, which any exception ends: NothingToErase, also if a concurrent
    erasure of the same entry came first.
    """
    entry = Entry.objects.filter(project=project, position=position, body__isnull=False).first()
    if entry is None:
        raise NothingToErase(
            f"Entry {position} has no body in this project; it may have been erased before."
        )
    try:
        erasure = Erasure.objects.create(
            entry=entry, project=project, reason=reason, actor=actor, erased_at_us=now_us
        )
    except IntegrityError:
        raise NothingToErase(f"Entry {position} is already being erased.") from None
    entries.delete_body(position)
    transaction.on_commit(text_caches.clear_text_caches)
    facts = orjson.dumps({"entry": position}).decode()
    entries.record_system_entry(
        project,
        "erasure.executed",
        event_id=entries.keyed_digest("erasure", str(project), str(position)),
        text=entries.dump_sorted_json({"entry": position, "reason": reason}),
        received_us=now_us,
        actor=actor,
        facts=facts,
        session=entry.session,
        effect=entry.effect,
    )
    return erasure
