"""Load stored attempts: all, or only those relevant to the next facts."""

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
FEW: Final = 50  # up to this many attempts of an effect are all loaded
_LIST: Final = ", ".join(ATTEMPT)
_MOST_NAMED: Final = 500
as_stored: Final = attrgetter(*ATTEMPT)  # the columns of an attempt as a tuple
_number: Final = attrgetter("int")


def bearing(
    rows: Mapping[UUID, EffectRow], facts: Mapping[UUID, Sequence[Fact]]
) -> dict[UUID, dict[int, AttemptRow]]:
    """Return the attempts of locked effects that `facts` and `fold.settle` need.

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
        some = row.attempt_count > FEW and len(numbers) <= _MOST_NAMED and not row.undoes
        withdrawn = row.superseded_mark or any(
            fact.kind == "effect.superseded" for fact in effect_facts
        )
        if some and not withdrawn and not fold.may_change_every_attempt(row, effect_facts):
            attempts[identity] = _load_selected(row, sorted(numbers))
        elif row.attempt_count:
            fully_read.append(identity)
    return attempts | load_attempts(fully_read)


def is_of(actor: str, effect: UUID, attempt: int) -> bool:
    """True if this journal actor dispatched the attempt."""
    entries = Entry.objects.filter(
        effect=effect, attempt=attempt, kind="effect.dispatched", actor=actor
    )
    return entries.filter(lane__in=("command", "evidence")).exists()


def load_attempts(identities: Iterable[UUID]) -> dict[UUID, dict[int, AttemptRow]]:
    """Load all attempts of locked effects, by effect and number."""
    keys = sorted(identities, key=_number)
    attempts: dict[UUID, dict[int, AttemptRow]] = {}
    for values in select("ledger_attempt", _LIST, "effect_id", keys, "number") if keys else []:
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
    attempts = [_attempt_row(values) for values in sql.rows(of_these, [key, *numbers])]
    attempts += [
        _attempt_row(values)
        for values in sql.rows(answered, [key])
        if values[_NUMBER] not in numbers
    ]
    return {row.number: row for row in attempts}


_NUMBER: Final = ATTEMPT.index("number")


def _attempt_row(values: Sequence[object]) -> AttemptRow:
    named = dict(zip(ATTEMPT, values, strict=True))
    named["project_id"], named["effect_id"] = (
        as_uuid(named["project_id"]),
        as_uuid(named["effect_id"]),
    )
    named["is_open"], named["replaced"] = bool(named["is_open"]), bool(named["replaced"])
    row = AttemptRow(**named)  # type: ignore[arg-type]  # the columns in the dataclass's order
    row.stored = as_stored(row)
    return row


def select(
    table: str, names: str, column: str, keys: list[UUID], order: str
) -> list[tuple[object, ...]]:
    """Return rows by keys, locked on PostgreSQL and batched on SQLite."""
    records: list[tuple[object, ...]] = []
    if connection.vendor == "postgresql":
        # A join instead of `= ANY`: a wrong row estimate must never cause a full table scan.
        lock = f" FOR UPDATE OF {table}" if order == "id" else ""
        if len(keys) == 1:
            return sql.rows(
                f"SELECT {names} FROM {table} WHERE {column} = %s ORDER BY {order}{lock}", keys
            )
        wanted = "unnest(%s::uuid[]) AS wanted(key)"
        source = f"{wanted} JOIN {table} ON {table}.{column} = wanted.key"
        query = f"SELECT {names} FROM {source} ORDER BY {order}{lock}"
        return sql.rows(query, [[key.hex for key in keys]])
    for start in range(0, len(keys), 500):
        part = [key.hex for key in keys[start : start + 500]]
        marks = ", ".join(["%s"] * len(part))
        records += sql.rows(
            f"SELECT {names} FROM {table} WHERE {column} IN ({marks}) ORDER BY {order}", part
        )
    return records
