"""Reads stored attempts: all of an effect, or of one that was tried very often those on which its next facts bear."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final
from uuid import UUID

from django.db import connection

from journal import sql
from journal.models import Entry
from ledger import fold
from ledger.fold import Fact
from ledger.rows import AttemptRow, EffectRow, as_uuid, columns, vendor_id

ATTEMPT: Final = columns(AttemptRow)
FEW: Final = 50  # so many attempts of an effect are read without asking which
_LIST: Final = ", ".join(ATTEMPT)
_MOST_NAMED: Final = 500
as_stored: Final = attrgetter(*ATTEMPT)  # the columns of an attempt as one value
_number: Final = attrgetter("int")


def bearing(
    rows: Mapping[UUID, EffectRow], facts: Mapping[UUID, Sequence[Fact]]
) -> dict[UUID, dict[int, AttemptRow]]:
    """The attempts of locked effects, by effect and number, as far as `facts` (by effect) and `fold.settle` ask.

    Of an effect with more than a few: those that a fact names, the newest, and the last two that were acknowledged;
    all of them only where a fact may change the leave that each of them ran under, or each may say that what it undoes
    is not undone, or that what was withdrawn may have happened.
    """
    fully_read: list[UUID] = []
    attempts: dict[UUID, dict[int, AttemptRow]] = {}
    for identity, row in rows.items():
        effect_facts = facts.get(identity, ())
        numbers = {fact.attempt for fact in effect_facts} | {row.attempt_count}
        some = row.attempt_count > FEW and len(numbers) <= _MOST_NAMED and not row.undoes
        withdrawn = row.superseded_mark or any(
            fact.kind == "effect.superseded" for fact in effect_facts
        )
        if some and not withdrawn and not fold.may_change_every_attempt(row, effect_facts):
            attempts[identity] = _some(row, sorted(numbers))
        elif row.attempt_count:
            fully_read.append(identity)
    return attempts | load_attempts(fully_read)


def is_of(actor: str, effect: UUID, attempt: int) -> bool:
    """True when the agent that is this actor in the journal dispatched the attempt."""
    entries = Entry.objects.filter(
        effect=effect, attempt=attempt, kind="effect.dispatched", actor=actor
    )
    return entries.filter(lane__in=("command", "evidence")).exists()


def load_attempts(identities: Iterable[UUID]) -> dict[UUID, dict[int, AttemptRow]]:
    """Read all attempts of effects whose rows are locked, by effect and number."""
    keys = sorted(identities, key=_number)
    attempts: dict[UUID, dict[int, AttemptRow]] = {}
    for values in select("ledger_attempt", _LIST, "effect_id", keys, "number") if keys else []:
        row = _row(values)
        attempts.setdefault(row.effect_id, {})[row.number] = row
    return attempts


def _some(effect: EffectRow, numbers: list[int]) -> dict[int, AttemptRow]:
    marks = ", ".join(["%s"] * len(numbers))
    key = vendor_id(effect.id)
    of_these = f"SELECT {_LIST} FROM ledger_attempt WHERE effect_id = %s AND number IN ({marks})"
    answered = (
        f"SELECT {_LIST} FROM ledger_attempt WHERE effect_id = %s AND acknowledged_mark <> '' AND outcome <> 'unknown'"
        " ORDER BY number DESC LIMIT 2"
    )
    attempts = [_row(values) for values in sql.rows(of_these, [key, *numbers])]
    attempts += [
        _row(values) for values in sql.rows(answered, [key]) if values[_NUMBER] not in numbers
    ]
    return {row.number: row for row in attempts}


_NUMBER: Final = ATTEMPT.index("number")


def _row(values: Sequence[object]) -> AttemptRow:
    named = dict(zip(ATTEMPT, values, strict=True))
    named["project_id"], named["effect_id"] = (
        as_uuid(named["project_id"]),
        as_uuid(named["effect_id"]),
    )
    named["is_open"], named["replaced"] = bool(named["is_open"]), bool(named["replaced"])
    row = AttemptRow(**named)  # type: ignore[arg-type]  # the columns are those of the dataclass, in its order
    row.stored = as_stored(row)
    return row


def select(
    table: str, names: str, column: str, keys: list[UUID], order: str
) -> list[tuple[object, ...]]:
    """The rows whose `column` is one of `keys`, locked on PostgreSQL; a bounded number of parameters on SQLite."""
    records: list[tuple[object, ...]] = []
    if connection.vendor == "postgresql":
        # Joined, not `= ANY`: a guess about how often each key occurs must never make it read the whole table.
        lock = f" FOR UPDATE OF {table}" if order == "id" else ""
        if len(keys) == 1:
            return sql.rows(
                f"SELECT {names} FROM {table} WHERE {column} = %s ORDER BY {order}{lock}", keys
            )
        wanted = "unnest(%s::uuid[]) AS wanted(key)"
        query = f"SELECT {names} FROM {wanted} JOIN {table} ON {table}.{column} = wanted.key ORDER BY {order}{lock}"
        return sql.rows(query, [[key.hex for key in keys]])
    for start in range(0, len(keys), 500):
        part = [key.hex for key in keys[start : start + 500]]
        marks = ", ".join(["%s"] * len(part))
        records += sql.rows(
            f"SELECT {names} FROM {table} WHERE {column} IN ({marks}) ORDER BY {order}", part
        )
    return records
