"""The one writer of Erasure: names a body, has it destroyed with its salt, and says so in the book."""

from collections.abc import Sequence
from uuid import UUID

import orjson
from django.db import IntegrityError

from journal import entries
from journal.models import Entry, Erasure


class NothingToErase(Exception):
    """No entry at that position in this project holds a body; check the position, it may have been erased before."""


def bring(rows: Sequence[Erasure]) -> None:
    """Say of entries of another book, which are here without their bodies, that they were erased there, and why."""
    Erasure.objects.bulk_create(rows, batch_size=500)


def erase(project: UUID, position: int, *, reason: str, actor: str, now_us: int) -> Erasure:
    """Destroy the body and salt of the entry at `position`; the entry and its commitment stay.

    The order is the law's: the Erasure row is written first, then the body goes, then `erasure.executed` is appended.
    Must run inside a transaction, which ends with what is raised: NothingToErase, also when another who erases the same
    entry was quicker.
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
        raise NothingToErase(f"Entry {position} is named for erasure already.") from None
    entries.destroy_body(position)
    facts = orjson.dumps({"entry": position}).decode()
    entries.record(
        project,
        "erasure.executed",
        event_id=entries.keyed_digest("erasure", str(project), str(position)),
        text=orjson.dumps(
            {"entry": position, "reason": reason}, option=orjson.OPT_SORT_KEYS
        ).decode(),
        received_us=now_us,
        actor=actor,
        facts=facts,
        session=entry.session,
        effect=entry.effect,
    )
    return erasure
