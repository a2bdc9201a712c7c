"""Load stored effects as rows that the fold may change."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final
from uuid import UUID

import orjson
from django.db import connection

from journal.models import Entry
from journal.order import position_of
from ledger.rows import EffectRow, as_uuid, columns
from ledger.tried import select

_EFFECT: Final = columns(EffectRow)
_EFFECT_LIST: Final = ", ".join(_EFFECT)


def load(identities: Iterable[UUID]) -> dict[UUID, EffectRow]:
    """Load and lock stored rows, in id order to prevent deadlocks.

    A second query loads the references of effects that a person resolved as happened.
    """
    records = select("ledger_effect", _EFFECT_LIST, "id", sorted(identities, key=_number), "id")
    rows = {row.id: row for row in map(effect_row, records)}
    by_position = {
        position_of(row.resolved_mark): row for row in rows.values() if row.resolution == "happened"
    }
    if by_position:
        effects = [row.id for row in by_position.values()]
        entries = Entry.objects.filter(
            position__in=list(by_position),
            effect__in=effects,
            kind="effect.resolved",
            lane="system",
        )
        for position, text in entries.filter(body__isnull=False).values_list(
            "position", "body__text"
        ):
            by_position[position].told_reference = orjson.loads(text).get("reference", "")
    return rows


_number: Final = attrgetter("int")  # a UUID's integer: sorts as its bytes do, and faster


def effect_row(values: Sequence[object]) -> EffectRow:
    """Build a row from the values of `SELECT <columns of EffectRow>`."""
    row = EffectRow(*values)  # type: ignore[arg-type]  # the columns in the dataclass's order
    if connection.vendor != "postgresql":
        for name in _EFFECT_UUIDS:
            setattr(row, name, as_uuid(getattr(row, name)))
        row.violates, row.compensated, row.enforced = (
            bool(row.violates),
            bool(row.compensated),
            bool(row.enforced),
        )
    return row


_EFFECT_UUIDS: Final = [
    name for name in _EFFECT if name == "id" or (name.endswith("_id") and name != "call_id")
]
