"""Read the names that plans used: names that look alike or nearly, and whether one ever ran."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db.models import Q

from db import raw_sql
from ledger.models import UsedName
from ledger.names.near_names import possible_pieces

MAX_SAME_LOOKING: Final = 1_000
MAX_NEAR_CANDIDATES: Final = 500  # of each third
NEWEST_NAMES: Final = 20

_COLUMNS: Final = (
    "id",
    "kind",
    "name",
    "skeleton",
    "first_position",
    "first_us",
    "last_us",
    "uses",
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


@dataclass(frozen=True, slots=True)
class StoredName:
    """A name with its uses: journal position of the first plan, times in microseconds."""

    id: int
    kind: str
    name: str
    skeleton: str
    first_position: int
    first_us: int
    last_us: int
    uses: int


@dataclass(frozen=True, slots=True)
class NewestName:
    """One of the names that a project used for the first time last."""

    kind: str
    name: str
    first_position: int
    uses: int


def load_same_looking(project: UUID, skeletons: Collection[str]) -> list[StoredName]:
    """Load the names with these skeletons, those used most first. One query."""
    if not skeletons:
        return []
    rows = UsedName.objects.filter(project=project, skeleton__in=[*skeletons]).order_by("-uses")
    return [StoredName(*row) for row in rows.values_list(*_COLUMNS)[:MAX_SAME_LOOKING]]


def load_near_candidates(
    project: UUID, kinds: Collection[str], parts: Collection[str]
) -> list[StoredName]:
    """Load names of these kinds that share a third with one of `parts`. Three queries."""
    if not parts:
        return []
    wanted: dict[str, set[str]] = {"head": set(), "middle": set(), "tail": set()}
    for part in parts:
        for pieces, possible in zip(wanted.values(), possible_pieces(part), strict=True):
            pieces |= possible
    names: dict[int, StoredName] = {}
    for column, pieces in wanted.items():
        rows = UsedName.objects.filter(
            ~Q(**{column: ""}), project=project, kind__in=[*kinds], **{f"{column}__in": [*pieces]}
        )
        for row in rows.values_list(*_COLUMNS)[:MAX_NEAR_CANDIDATES]:
            names[row[0]] = StoredName(*row)
    return list(names.values())


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
