"""Read the names that plans used: names that look alike or nearly, and whether one ever ran."""

import json
from collections.abc import Collection, Iterable
from functools import cache
from typing import Final, NamedTuple
from uuid import UUID

from django.db import connection

from db import raw_sql
from ledger.names.near_names import possible_pairs, possible_pieces

MAX_SAME_LOOKING: Final = 1_000
MAX_NEAR_CANDIDATES: Final = 300  # of each third and pair of thirds
NEWEST_NAMES: Final = 20

_SELECTED: Final = ", ".join(
    f"name.{column}"
    for column in (
        *("id", "kind", "name", "skeleton", "first_position", "first_us", "last_us", "uses"),
    )
)
_PLANS: Final = (
    "SELECT plan.name_id, plan.position, effect.attempt_count > 0"
    " FROM {} CROSS JOIN ledger_usednameplan plan"
    " JOIN journal_entry entry ON entry.position = plan.position"
    " JOIN ledger_effect effect ON effect.id = entry.effect WHERE plan.name_id = wanted.key"
)
_NEWEST: Final = (
    "SELECT * FROM (SELECT kind, name, first_position, uses FROM ledger_usedname"
    " WHERE project_id = %s AND kind = %s ORDER BY first_position DESC LIMIT"
    f" {NEWEST_NAMES}) newest"
)


class StoredName(NamedTuple):
    """A name with its uses: journal position of the first plan, times in microseconds."""

    id: int
    kind: str
    name: str
    skeleton: str
    first_position: int
    first_us: int
    last_us: int
    uses: int


class NewestName(NamedTuple):
    """One of the names that a project used for the first time last."""

    kind: str
    name: str
    first_position: int
    uses: int


def load_same_looking(project: UUID, skeletons: Collection[str]) -> list[StoredName]:
    """Load the names with these skeletons, those used most first. One query."""
    wanted = [[skeleton] for skeleton in skeletons if skeleton.isprintable()]
    if not wanted:
        return []
    rows = raw_sql.fetch_rows(_same_looking_sql(), [json.dumps(wanted), raw_sql.vendor_id(project)])
    return sorted(map(StoredName._make, rows), key=lambda name: -name.uses)


def load_near_candidates(
    project: UUID, parts: Collection[tuple[str, str]], least_uses: int
) -> list[StoredName]:
    """Load names that share thirds with one of `parts`, each a kind and a compared part.

    One query: at most MAX_NEAR_CANDIDATES for each pair of thirds, which names with one difference
    share, and for each third, which names with two share. Of these, it returns the names with at
    least `least_uses`.
    """
    pairs: tuple[list[list[str]], ...] = ([], [], [])
    singles: tuple[list[list[str]], ...] = ([], [], [])
    for kind, part in parts:
        if not part.isprintable():
            continue
        for listed, shared in zip(pairs, possible_pairs(part), strict=True):
            listed += [[kind, *pair] for pair in shared]
        for listed, pieces in zip(singles, possible_pieces(part), strict=True):
            listed += [[kind, piece] for piece in pieces]
    if not any(singles):
        return []
    parameters = [
        parameter
        for listed in (*pairs, *singles)
        for parameter in (json.dumps(listed), raw_sql.vendor_id(project), least_uses)
    ]
    rows = {row[0]: row for row in raw_sql.fetch_rows(_near_sql(), parameters)}
    return list(map(StoredName._make, rows.values()))


@cache
def _same_looking_sql() -> str:
    return f"SELECT {_SELECTED} FROM " + _join_names(
        1, "name.project_id = %s AND name.skeleton = wanted.key0", MAX_SAME_LOOKING
    )


@cache
def _near_sql() -> str:
    near = "SELECT * FROM (SELECT {} FROM {}) near WHERE near.uses >= %s"
    selects = []
    thirds = ("head", "middle", "tail")
    for column, other in zip(thirds, (*thirds[1:], thirds[0]), strict=True):
        condition = (
            f"name.project_id = %s AND name.kind = wanted.key0 AND name.{column} = wanted.key1"
            f" AND name.{other} = wanted.key2 AND NOT (name.{column} = '')"
        )
        joined = _join_names(3, condition, MAX_NEAR_CANDIDATES)
        selects.append(near.format(_SELECTED, joined))
    for column in thirds:
        condition = (
            f"name.project_id = %s AND name.kind = wanted.key0 AND name.{column} = wanted.key1"
            f" AND NOT (name.{column} = '')"
        )
        joined = _join_names(2, condition, MAX_NEAR_CANDIDATES)
        selects.append(near.format(_SELECTED, joined))
    return " UNION ALL ".join(selects)


def _join_names(count: int, condition: str, most: int) -> str:
    """Return a FROM item: the names of each of the wanted keys, read by index, at most `most`.

    The limit inside makes PostgreSQL look up each key, whatever its planner estimates.
    """
    if connection.vendor == "postgresql":
        names = f"SELECT * FROM ledger_usedname name WHERE {condition} LIMIT {most}"
        return f"{_wanted_keys(count)} CROSS JOIN LATERAL ({names}) name LIMIT {most}"
    return f"{_wanted_keys(count)} CROSS JOIN ledger_usedname name WHERE {condition} LIMIT {most}"


def _wanted_keys(count: int) -> str:
    """Return a FROM item with the columns key0, key1 … of a JSON list of lists."""
    if connection.vendor == "postgresql":
        columns = ", ".join(f"element.value ->> {n} AS key{n}" for n in range(count))
        return (
            f"(SELECT {columns} FROM jsonb_array_elements(CAST(%s AS jsonb)) AS element(value))"
            " AS wanted"
        )
    columns = ", ".join(f"json_extract(value, '$[{n}]') AS key{n}" for n in range(count))
    return f"(SELECT {columns} FROM json_each(%s)) AS wanted"


def load_linked_plans(names: Collection[int]) -> dict[int, list[tuple[int, bool]]]:
    """Load the first plans of names by id: position, and whether the effect ran. One query."""
    plans: dict[int, list[tuple[int, bool]]] = {}
    if not names:
        return plans
    for name, position, ran in raw_sql.fetch_rows(
        _PLANS.format(raw_sql.wanted_table("bigint")), [raw_sql.to_array_parameter(names)]
    ):
        plans.setdefault(name, []).append((position, bool(ran)))
    return plans


def load_newest_names(project: UUID, kinds: Iterable[str]) -> list[NewestName]:
    """Load the NEWEST_NAMES names of each kind that were first used last. One query."""
    listed = sorted(kinds)
    if not listed:
        return []
    parameters = [value for kind in listed for value in (raw_sql.vendor_id(project), kind)]
    rows = raw_sql.fetch_rows(" UNION ALL ".join([_NEWEST] * len(listed)), parameters)
    return [NewestName(*row) for row in rows]
