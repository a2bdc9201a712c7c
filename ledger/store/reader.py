"""Load stored effects as rows that the fold may change."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final
from uuid import UUID

import orjson
from django.db import connection

from db import raw_sql
from journal.models import Entry
from journal.order_keys import position_of_resolution
from ledger.fold import effect_state
from ledger.fold.effect_state import Fact
from ledger.store.effect_rows import AttemptRow, EffectRow, row_columns, to_uuid, vendor_id

_EFFECT: Final = row_columns(EffectRow)
_EFFECT_LIST: Final = ", ".join(_EFFECT)


def lock_effects(identities: Iterable[UUID]) -> dict[UUID, EffectRow]:
    """Lock stored effects and return them, in id order to prevent deadlocks.

    A second query loads the references of effects that a person resolved as happened.
    """
    records = select_by_keys(
        "ledger_effect", _EFFECT_LIST, "id", sorted(identities, key=_number), "id"
    )
    rows = {row.id: row for row in map(effect_from_row, records)}
    by_position = {
        position_of_resolution(row.resolved_mark): row
        for row in rows.values()
        if row.resolution == "happened"
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


def effect_from_row(values: Sequence[object]) -> EffectRow:
    """Build a row from the values of `SELECT <columns of EffectRow>`."""
    row = EffectRow(*values)  # type: ignore[arg-type]  # the columns in the dataclass's order
    if connection.vendor != "postgresql":
        for name in _EFFECT_UUIDS:
            setattr(row, name, to_uuid(getattr(row, name)))
        row.violates, row.compensated, row.policy_enforced = (
            bool(row.violates),
            bool(row.compensated),
            bool(row.policy_enforced),
        )
    return row


_EFFECT_UUIDS: Final = [
    name for name in _EFFECT if name == "id" or (name.endswith("_id") and name != "call_id")
]

ATTEMPT_COLUMNS: Final = row_columns(AttemptRow)
MAX_FULLY_LOADED: Final = 50  # up to this many attempts of an effect are all loaded
_LIST: Final = ", ".join(ATTEMPT_COLUMNS)
_MOST_NAMED: Final = 500
attempt_values: Final = attrgetter(*ATTEMPT_COLUMNS)  # the columns of an attempt as a tuple


def load_relevant_attempts(
    rows: Mapping[UUID, EffectRow], facts: Mapping[UUID, Sequence[Fact]]
) -> dict[UUID, dict[int, AttemptRow]]:
    """Return the attempts of locked effects that `facts` and `load_and_derive_state` need.

    Keyed by effect and number. Of an effect with many attempts: those that a fact names, the
    newest, and the last two acknowledged ones. All of them only where a fact may change the
    permission of each, where each may show that a compensation failed, or where each may show that
    a withdrawn effect happened.
    """
    fully_read: list[UUID] = []
    attempts: dict[UUID, dict[int, AttemptRow]] = {}
    for identity, row in rows.items():
        effect_facts = facts.get(identity, ())
        numbers = {fact.attempt for fact in effect_facts} | {row.attempt_count}
        some = (
            row.attempt_count > MAX_FULLY_LOADED and len(numbers) <= _MOST_NAMED and not row.undoes
        )
        withdrawn = row.superseded_mark or any(
            fact.kind == "effect.superseded" for fact in effect_facts
        )
        if some and not withdrawn and not effect_state.may_change_every_attempt(row, effect_facts):
            attempts[identity] = _load_selected(row, sorted(numbers))
        elif row.attempt_count:
            fully_read.append(identity)
    return attempts | load_attempts(fully_read)


def is_attempt_by(actor: str, effect: UUID, attempt: int) -> bool:
    """True if this journal actor dispatched the attempt."""
    entries = Entry.objects.filter(
        effect=effect, attempt=attempt, kind="effect.dispatched", actor=actor
    )
    return entries.filter(lane__in=("command", "evidence")).exists()


def load_attempts(identities: Iterable[UUID]) -> dict[UUID, dict[int, AttemptRow]]:
    """Load all attempts of locked effects, by effect and number."""
    keys = sorted(identities, key=_number)
    attempts: dict[UUID, dict[int, AttemptRow]] = {}
    for values in (
        select_by_keys("ledger_attempt", _LIST, "effect_id", keys, "number") if keys else []
    ):
        row = _attempt_row(values)
        attempts.setdefault(row.effect_id, {})[row.number] = row
    return attempts


def _load_selected(effect: EffectRow, numbers: list[int]) -> dict[int, AttemptRow]:
    marks = ", ".join(["%s"] * len(numbers))
    key = vendor_id(effect.id)
    of_these = f"SELECT {_LIST} FROM ledger_attempt WHERE effect_id = %s AND number IN ({marks})"
    answered = (
        f"SELECT {_LIST} FROM ledger_attempt WHERE effect_id = %s"
        " AND acknowledged_mark <> '' AND outcome <> 'unknown'"
        " ORDER BY number DESC LIMIT 2"
    )
    attempts = [_attempt_row(values) for values in raw_sql.fetch_rows(of_these, [key, *numbers])]
    attempts += [
        _attempt_row(values)
        for values in raw_sql.fetch_rows(answered, [key])
        if values[_NUMBER] not in numbers
    ]
    return {row.number: row for row in attempts}


_NUMBER: Final = ATTEMPT_COLUMNS.index("number")


def _attempt_row(values: Sequence[object]) -> AttemptRow:
    named = dict(zip(ATTEMPT_COLUMNS, values, strict=True))
    named["project_id"], named["effect_id"] = (
        to_uuid(named["project_id"]),
        to_uuid(named["effect_id"]),
    )
    named["is_open"], named["replaced"] = bool(named["is_open"]), bool(named["replaced"])
    row = AttemptRow(**named)  # type: ignore[arg-type]  # the columns in the dataclass's order
    row.stored = attempt_values(row)
    return row


def select_by_keys(
    table: str, names: str, column: str, keys: list[UUID], order: str
) -> list[tuple[object, ...]]:
    """Return rows by keys, locked on PostgreSQL and batched on SQLite."""
    records: list[tuple[object, ...]] = []
    if connection.vendor == "postgresql":
        # A join instead of `= ANY`: a wrong row estimate must never cause a full table scan.
        lock = f" FOR UPDATE OF {table}" if order == "id" else ""
        if len(keys) == 1:
            return raw_sql.fetch_rows(
                f"SELECT {names} FROM {table} WHERE {column} = %s ORDER BY {order}{lock}", keys
            )
        wanted = "unnest(%s::uuid[]) AS wanted(key)"
        source = f"{wanted} JOIN {table} ON {table}.{column} = wanted.key"
        query = f"SELECT {names} FROM {source} ORDER BY {order}{lock}"
        return raw_sql.fetch_rows(query, [[key.hex for key in keys]])
    for start in range(0, len(keys), 500):
        part = [key.hex for key in keys[start : start + 500]]
        marks = ", ".join(["%s"] * len(part))
        records += raw_sql.fetch_rows(
            f"SELECT {names} FROM {table} WHERE {column} IN ({marks}) ORDER BY {order}", part
        )
    return records
