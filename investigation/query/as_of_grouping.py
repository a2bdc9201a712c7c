"""Groups as of a moment.

The database aggregates the unchanged rows, and plain Python aggregates the rows that changed since,
as they were. Counts, sums and extremes of both are added up. For distinct values, only values that
changed rows have too are fetched; for a percentile, only as many neighbours of its rank as rows
changed. So no table is read completely.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum, Window
from django.db.models.functions import RowNumber

from approvals.models import Gate
from investigation.history import past_gate_states
from investigation.query import grouping
from investigation.query.as_of import RelatedValues
from investigation.query.fields.row_tests import CompileContext, RowTest
from investigation.query.fields.types import ComputedChoice, Field, MultiValue, Ordered
from investigation.query.grouping import (
    GroupTable,
    annotate_values,
    count_distinct,
    counted_rows_condition,
    group_key,
    measured_value,
)
from investigation.query.parser.query_parser import Aggregate

if TYPE_CHECKING:
    from investigation.query.execute import CompiledQuery

MAX_PAST_GROUPS: Final = 20_000
MAX_NEIGHBOURS: Final = 200_000  # Most values that are read around the ranks of a percentile.
_AS_NOW: Final = "Groups use the current values of rows that changed since then."

Key = tuple[Any, ...]
_GroupsByKey = defaultdict[Key, "_Group"]


@dataclass(frozen=True, slots=True)
class _Unit:
    """What counts once: a row that matched, alone or with one of its related rows.

    `values` has one value for each figure.
    """

    row: Any
    key: Key
    values: tuple[Any, ...]


@dataclass(slots=True)
class _Group:
    """A group: its rows, the database's result per figure, and the values of changed rows."""

    rows: int = 0
    from_database: dict[int, Any] = field(default_factory=dict)
    sums: dict[int, tuple[int, int]] = field(default_factory=dict)  # Averages: (sum, count).
    changed_values: dict[int, list[Any]] = field(default_factory=dict)


def load_past_groups(
    compiled: "CompiledQuery",
    unchanged: "QuerySet[Any]",
    current_matches: "Callable[[], QuerySet[Any]]",
) -> GroupTable:
    """Return the groups as of the query's moment, those with most rows first.

    `unchanged` are the matches that did not change since. `current_matches` returns all matches in
    their current state: they are grouped, with a note, if there are too many groups or the group
    fields cannot be rebuilt.
    """
    table = grouping.build_table(compiled)
    units = _build_units(compiled, table)
    rows = grouping.limit_related_rows(compiled, unchanged, table.names).order_by()
    groups_by_key = _load_unchanged_groups(compiled, table, rows) if units is not None else None
    if (
        units is None
        or groups_by_key is None
        or not _add_changed(compiled, table, rows, groups_by_key, units)
    ):
        current = grouping.load_groups(compiled, current_matches())
        return replace(current, notes=(_AS_NOW,))
    functions = [aggregate.function for aggregate, _ in table.figures]
    rows_told = [
        (key, tuple(_compute_figure(function, n, group) for n, function in enumerate(functions)))
        for key, group in groups_by_key.items()
    ]
    sizes = {key: group.rows for key, group in groups_by_key.items()}
    by_first = functions[0] in grouping.SQL_AGGREGATES or functions[0] == "distinct"

    def order(row: tuple[Key, tuple[Any, ...]]) -> Any:
        figure = row[1][0] if by_first else 0
        return (
            figure is None,
            -(figure or 0),
            -sizes[row[0]],
            [grouping.key_rank(value) for value in row[0]],
        )

    rows_told.sort(key=order)
    most = grouping.max_groups(compiled)
    shown = [(grouping.format_key(table.names, key), row) for key, row in rows_told[:most]]
    return replace(table, rows=shown, more=len(rows_told) > most)


def _load_unchanged_groups(
    compiled: "CompiledQuery", table: GroupTable, rows: "QuerySet[Any]"
) -> "_GroupsByKey | None":
    """Aggregate the unchanged rows in the database; return None for too many groups."""
    has_several = _is_several(table)
    keys = _group_keys(compiled, table)
    annotations: dict[str, Any] = {
        "rows_of_it": Count("pk", distinct=True) if has_several else Count("*")
    }
    for n, (aggregate, of) in enumerate(table.figures):
        if of is None or aggregate.function[0] == "p":
            continue
        if aggregate.function == "distinct":
            annotations[f"figure_{n}"] = count_distinct(of, compiled.context)
            continue
        value, present = _require_measured_value(of, compiled.context)
        if aggregate.function == "avg":
            annotations[f"figure_{n}"] = Sum(value, filter=present)
            annotations[f"number_{n}"] = Count("pk", filter=present)
        else:
            annotations[f"figure_{n}"] = {"min": Min, "max": Max, "sum": Sum}[aggregate.function](
                value, filter=present
            )
    rows_found = list(rows.values(**keys).annotate(**annotations)[: MAX_PAST_GROUPS + 1])
    if len(rows_found) > MAX_PAST_GROUPS:
        return None
    groups_by_key: _GroupsByKey = defaultdict(_Group)
    for row in rows_found:
        group = groups_by_key[tuple(row[name] for name in keys)]
        group.rows = row["rows_of_it"]
        for n, (aggregate, _) in enumerate(table.figures):
            value = row.get(f"figure_{n}")
            if aggregate.function == "avg":
                group.sums[n] = int(value or 0), row[f"number_{n}"]
            elif value is not None:
                group.from_database[n] = int(value)
    return groups_by_key


def _add_changed(
    compiled: "CompiledQuery",
    table: GroupTable,
    rows: "QuerySet[Any]",
    groups_by_key: _GroupsByKey,
    units: list[_Unit],
) -> bool:
    """Add the values of changed rows; return False if that would read too much."""
    for key, number in Counter(
        key for key, _ in {(unit.key, unit.row): None for unit in units}
    ).items():
        groups_by_key[key].rows += number
    for unit in units:
        for n, value in enumerate(unit.values):
            if value is not None:
                groups_by_key[unit.key].changed_values.setdefault(n, []).append(value)
    for n, (aggregate, of) in enumerate(table.figures):
        if of is None:
            continue
        if aggregate.function == "distinct":
            _keep_new_values(compiled, table, rows, groups_by_key, n, of)
        elif aggregate.function[0] == "p" and not _add_percentiles(
            compiled, table, rows, groups_by_key, n, aggregate, of
        ):
            return False
    return True


def _compute_figure(function: str, n: int, group: _Group) -> Any:
    if function == "count":
        return group.rows
    from_database, changed_values = group.from_database.get(n), group.changed_values.get(n, [])
    if function == "distinct":
        return (from_database or 0) + len(set(changed_values))
    if function == "avg":
        total, number = group.sums.get(n, (0, 0))
        number += len(changed_values)
        return (total + sum(changed_values)) / number if number else None
    if function[0] == "p":
        return from_database
    all_values = [*changed_values, *([] if from_database is None else [from_database])]
    if not all_values:
        return None
    return (
        sum(all_values)
        if function == "sum"
        else min(all_values)
        if function == "min"
        else max(all_values)
    )


def _keep_new_values(
    compiled: "CompiledQuery",
    table: GroupTable,
    rows: "QuerySet[Any]",
    groups_by_key: _GroupsByKey,
    n: int,
    of: Field,
) -> None:
    """Keep only those distinct values of changed rows that no other row of their group has."""
    changed_values = {
        value for group in groups_by_key.values() for value in group.changed_values.get(n, ())
    }
    if not changed_values:
        return
    keys = _group_keys(compiled, table)
    pairs = annotate_values(
        rows,
        keys,
        of,
        group_key(of, compiled.context),
        counted_rows_condition(of, compiled.context),
    )
    pairs = pairs.filter(value_of_it__in=list(changed_values))
    existing = set(pairs.values_list(*keys, "value_of_it").distinct())
    for key, group in groups_by_key.items():
        group.changed_values[n] = [
            value for value in group.changed_values.get(n, ()) if (*key, value) not in existing
        ]


def _add_percentiles(
    compiled: "CompiledQuery",
    table: GroupTable,
    rows: "QuerySet[Any]",
    groups_by_key: _GroupsByKey,
    n: int,
    aggregate: Aggregate,
    of: Field,
) -> bool:
    """Find the nearest-rank percentile of each group; return False if that would read too much.

    N changed rows move a rank by at most N, so N neighbours on each side are enough.
    """
    percent, keys = int(aggregate.function[1:]), _group_keys(compiled, table)
    moved = max(
        (len(group.changed_values.get(n, ())) for group in groups_by_key.values()), default=0
    )
    if len(groups_by_key) * (2 * moved + 2) > MAX_NEIGHBOURS:
        return False
    value, present = _require_measured_value(of, compiled.context)
    part = [F(name) for name in keys]
    ranked = annotate_values(rows, keys, of, value, present).annotate(
        rank=Window(RowNumber(), partition_by=part, order_by=F("value_of_it").asc()),
        of_all=Window(Count("pk"), partition_by=part),
    )
    near = ranked.filter(
        Q(rank__gte=(F("of_all") * percent + 99) / 100 - moved),
        Q(rank__lte=((F("of_all") + moved) * percent + 99) / 100),
    )
    neighbours_by_key: dict[Key, list[tuple[int, int, int]]] = {}
    for *key, rank, number, value in near.values_list(*keys, "rank", "of_all", "value_of_it"):
        neighbours_by_key.setdefault(tuple(key), []).append((rank, int(value), number))
    for key, group in groups_by_key.items():
        neighbours, changed_values = (
            sorted(neighbours_by_key.get(key, ())),
            group.changed_values.get(n, []),
        )
        in_all = (neighbours[0][2] if neighbours else 0) + len(changed_values)
        if in_all:
            below = neighbours[0][0] - 1 if neighbours else 0
            rank = (in_all * percent + 99) // 100
            group.from_database[n] = sorted(
                [*(value for _, value, _ in neighbours), *changed_values]
            )[rank - below - 1]
    return True


def _is_several(table: GroupTable) -> bool:
    return any(
        isinstance(group_field, MultiValue)
        for group_field in (*table.names, *(of for _, of in table.figures))
    )


def _group_keys(compiled: "CompiledQuery", table: GroupTable) -> dict[str, Any]:
    return {
        f"key_{n}": group_key(group_field, compiled.context)
        for n, group_field in enumerate(table.names)
    }


def _require_measured_value(of: Field, context: CompileContext) -> tuple[Any, Q]:
    measured = measured_value(of, context)
    assert measured is not None  # noqa: S101 - grouping.check made sure
    return measured


# Changed rows, in plain Python.


def _build_units(compiled: "CompiledQuery", table: GroupTable) -> list[_Unit] | None:
    """Return what counts of the rows that changed since, as they were, or None if unknown."""
    assert compiled.past is not None  # noqa: S101 - asked as of a moment
    changed_rows = [compiled.past.rebuilt_rows[pk] for pk in compiled.past.matching_ids]
    if not changed_rows:
        return []
    related_by_row = (
        _rebuild_related_rows(compiled, table)
        if _is_several(table)
        else {row.pk: [None] for row in changed_rows}
    )
    if related_by_row is None:
        return None
    inner = {
        related.pk: related
        for related_rows in related_by_row.values()
        for related in related_rows
        if related is not None
    }
    names, related_names = RelatedValues(changed_rows), RelatedValues(list(inner.values()))
    grouped = _load_computed_keys(compiled, table)
    figures = {of.name: of for _, of in table.figures if isinstance(of, MultiValue)}
    counted = {
        name: _find_counted_related(of, compiled.context, inner) for name, of in figures.items()
    }

    def value(of: Field, row: Any, related: Any) -> Any:
        if of.name in grouped:
            return grouped[of.name].get(row.pk)
        if not isinstance(of, MultiValue):
            return _group_key(of, row, compiled.context, names)
        assert of.inner is not None  # noqa: S101 - the registry's own tests make sure
        return (
            None
            if related is None
            else related_names.value(related, of.inner.shows or of.inner.path)
        )

    def measured(aggregate: Aggregate, of: Field | None, row: Any, related: Any) -> Any:
        if of is None or (
            isinstance(of, MultiValue)
            and related is not None
            and related.pk not in counted[of.name]
        ):
            return None
        if aggregate.function == "distinct":
            return value(of, row, related)
        value_field, at = (of.inner, related) if isinstance(of, MultiValue) else (of, row)
        return (
            value_field.plain(at) if isinstance(value_field, Ordered) and at is not None else None
        )

    return [
        _Unit(
            row.pk,
            tuple(value(aggregate, row, related) for aggregate in table.names),
            tuple(measured(aggregate, of, row, related) for aggregate, of in table.figures),
        )
        for row in changed_rows
        for related in related_by_row.get(row.pk, ())
    ]


def _find_counted_related(
    of: MultiValue, context: CompileContext, inner: dict[Any, Any]
) -> Collection[Any]:
    """Return which related rows count for the field; this set never changes."""
    if not of.left or of.rows is None:
        return inner
    return set(of.rows(context.project).filter(pk__in=inner).values_list("pk", flat=True))


def _load_computed_keys(compiled: "CompiledQuery", table: GroupTable) -> dict[str, dict[Any, Any]]:
    """Return the group keys, by row id, of fields that are not columns and never change."""
    assert compiled.past is not None  # noqa: S101 - asked as of a moment
    fields = (*table.names, *(of for _, of in table.figures if of is not None))
    keys = {
        group_field.name: key
        for group_field in fields
        if (key := group_field.grouped()) is not None
    }
    rows = compiled.entity.select_project_rows(compiled.context.project).filter(
        pk__in=compiled.past.matching_ids
    )
    return {name: dict(rows.values_list("pk", key)) for name, key in keys.items()}


def _group_key(group_field: Field, row: Any, context: CompileContext, names: RelatedValues) -> Any:
    """Return a row's group key, equal to the database's `grouping.group_key`."""
    if not isinstance(group_field, ComputedChoice) or group_field.each is None:
        return names.value(row, grouping.group_column(group_field))
    for word, _ in group_field.choices:
        test: RowTest = group_field.each(word, context)
        if test.holds is not None and test.holds(row):
            return word
    return ""


def _rebuild_related_rows(
    compiled: "CompiledQuery", table: GroupTable
) -> dict[Any, list[Any]] | None:
    """Return the related rows that count for each changed row, as they were; [None] for no rows.

    Returns None if they cannot be rebuilt: they may change and are not gates, or are of several
    kinds.
    """
    assert compiled.past is not None  # noqa: S101 - asked as of a moment
    fields = [
        multi_field
        for multi_field in (*table.names, *(of for _, of in table.figures))
        if isinstance(multi_field, MultiValue)
    ]
    of = fields[0]
    if of.rows is None or len({multi_field.reach for multi_field in fields}) > 1:
        return None
    model, cut, project = (
        of.rows(compiled.context.project).model,
        compiled.past.cut,
        compiled.context.project,
    )
    changed = compiled.entity.select_project_rows(project).filter(pk__in=compiled.past.matching_ids)
    rows = grouping.limit_related_rows(compiled, changed, table.names)
    if model is Gate and rows is changed:
        make: Callable[[list[Any]], dict[Any, Any]] = partial(
            past_gate_states.rebuild_stored_gates, project.id, cut=cut
        )
    elif of.lasts:
        make = model._default_manager.filter(**{f"{of.reported_at}__lte": cut.position}).in_bulk
    else:
        return None
    pairs = list(rows.order_by().values_list("pk", f"{of.reach}__pk"))
    rebuilt = make([related_id for _, related_id in pairs if related_id is not None])
    related_by_row: dict[Any, list[Any]] = {}
    for pk, related_id in sorted(set(pairs), key=str):
        if related_id in rebuilt:
            related_by_row.setdefault(pk, []).append(rebuilt[related_id])
    if rows is changed:  # Rows without related rows count as well.
        related_by_row |= {
            pk: [None] for pk in compiled.past.matching_ids if pk not in related_by_row
        }
    return related_by_row
