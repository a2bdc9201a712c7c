"""Groups as of a moment: the database counts what has not changed since, plain Python what has, as it stood then.

Counts, sums and extremes of both add up. Of different values only those are fetched that changed rows have too, and of
a percentile only as many neighbours of its rank as rows changed: so nothing is read whole, however much there is.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum, Window
from django.db.models.functions import RowNumber

from approvals.models import Gate
from inquiry.asof import gates
from inquiry.query import grouping
from inquiry.query.fields import Context, Field, Own, Test
from inquiry.query.grouping import Groups, counted_of, different_of, key_of, measured_of, with_values
from inquiry.query.kinds import Ordered, Several
from inquiry.query.past import Names
from inquiry.query.syntax import Aggregate

if TYPE_CHECKING:
    from inquiry.query.asking import Asked

MOST_GROUPS: Final = 20_000
MOST_NEIGHBOURS: Final = 200_000  # values about the ranks of a percentile
_AS_NOW: Final = "What changed since then is grouped and measured as it stands now."

Key = tuple[Any, ...]
_Known = defaultdict[Key, "_Group"]


@dataclass(frozen=True, slots=True)
class _Unit:
    """What counts once: a row that matched then, or it with one of its several rows. `values` of each figure."""

    row: Any
    key: Key
    values: tuple[Any, ...]


@dataclass(slots=True)
class _Group:
    """What is known of a group: rows, and of each figure what the database found and what changed rows had."""

    rows: int = 0
    found: dict[int, Any] = field(default_factory=dict)
    sums: dict[int, tuple[int, int]] = field(default_factory=dict)  # of averages: sum and how many
    then: dict[int, list[Any]] = field(default_factory=dict)


def groups(asked: "Asked", unchanged: "QuerySet[Any]", whole: "Callable[[], QuerySet[Any]]") -> Groups:
    """The groups of the matches as of the query's moment, those with most rows first.

    `unchanged` are the matches of which nothing was told since, `whole` all of them as they stand now: those are
    counted, and a note says so, where the groups are too many or what they go by cannot be made again.
    """
    table = grouping.heads(asked)
    units = _units(asked, table)
    rows = grouping.of_the_same(asked, unchanged, table.names).order_by()
    known = _counted(asked, table, rows) if units is not None else None
    if units is None or known is None or not _put(asked, table, rows, known, units):
        asked.context.notes.append(_AS_NOW)
        return grouping.groups(asked, whole())
    functions = [one.function for one, _ in table.figures]
    told = [(key, tuple(_figure(of, n, group) for n, of in enumerate(functions))) for key, group in known.items()]
    sizes = {key: group.rows for key, group in known.items()}
    by_first = functions[0] in grouping.PLAIN or functions[0] == "distinct"

    def order(row: tuple[Key, tuple[Any, ...]]) -> Any:
        figure = row[1][0] if by_first else 0
        return figure is None, -(figure or 0), -sizes[row[0]], [(one is not None, str(one)) for one in row[0]]

    told.sort(key=order)
    most = grouping.most_of(asked)
    table.rows, table.more = told[:most], len(told) > most
    return table


def _counted(asked: "Asked", table: Groups, rows: "QuerySet[Any]") -> "_Known | None":
    """What the database says of the rows that have not changed; None of too many groups."""
    several = _is_several(table)
    keys = _keys(asked, table)
    made: dict[str, Any] = {"rows_of_it": Count("pk", distinct=True) if several else Count("*")}
    for n, (one, of) in enumerate(table.figures):
        if of is None or one.function[0] == "p":
            continue
        if one.function == "distinct":
            made[f"figure_{n}"] = different_of(of, asked.context)
            continue
        value, present = _measured(of, asked.context)
        if one.function == "avg":
            made[f"figure_{n}"] = Sum(value, filter=present)
            made[f"number_{n}"] = Count("pk", filter=present)
        else:
            made[f"figure_{n}"] = {"min": Min, "max": Max, "sum": Sum}[one.function](value, filter=present)
    found = list(rows.values(**keys).annotate(**made)[: MOST_GROUPS + 1])
    if len(found) > MOST_GROUPS:
        return None
    known: _Known = defaultdict(_Group)
    for row in found:
        group = known[tuple(row[name] for name in keys)]
        group.rows = row["rows_of_it"]
        for n, (one, _) in enumerate(table.figures):
            value = row.get(f"figure_{n}")
            if one.function == "avg":
                group.sums[n] = int(value or 0), row[f"number_{n}"]
            elif value is not None:
                group.found[n] = int(value)
    return known


def _put(asked: "Asked", table: Groups, rows: "QuerySet[Any]", known: _Known, units: list[_Unit]) -> bool:
    """Add what changed rows had; False where too much would have to be read for it."""
    for key, number in Counter(key for key, _ in {(unit.key, unit.row): None for unit in units}).items():
        known[key].rows += number
    for unit in units:
        for n, value in enumerate(unit.values):
            if value is not None:
                known[unit.key].then.setdefault(n, []).append(value)
    for n, (one, of) in enumerate(table.figures):
        if of is None:
            continue
        if one.function == "distinct":
            _different(asked, table, rows, known, n, of)
        elif one.function[0] == "p" and not _ranked(asked, table, rows, known, n, one, of):
            return False
    return True


def _figure(function: str, n: int, group: _Group) -> Any:
    if function == "count":
        return group.rows
    found, then = group.found.get(n), group.then.get(n, [])
    if function == "distinct":
        return (found or 0) + len(set(then))
    if function == "avg":
        total, number = group.sums.get(n, (0, 0))
        number += len(then)
        return (total + sum(then)) / number if number else None
    if function[0] == "p":
        return found
    both = [*then, *([] if found is None else [found])]
    if not both:
        return None
    return sum(both) if function == "sum" else min(both) if function == "min" else max(both)


def _different(asked: "Asked", table: Groups, rows: "QuerySet[Any]", known: _Known, n: int, of: Field) -> None:
    """Leave of the values that changed rows had those that no other row of their group has."""
    then = {value for group in known.values() for value in group.then.get(n, ())}
    if not then:
        return
    keys = _keys(asked, table)
    pairs = with_values(rows, keys, of, key_of(of, asked.context), counted_of(of, asked.context))
    pairs = pairs.filter(value_of_it__in=list(then))
    seen = set(pairs.values_list(*keys, "value_of_it").distinct())
    for key, group in known.items():
        group.then[n] = [value for value in group.then.get(n, ()) if (*key, value) not in seen]


def _ranked(
    asked: "Asked", table: Groups, rows: "QuerySet[Any]", known: _Known, n: int, one: Aggregate, of: Field
) -> bool:
    """Find the nearest-rank percentile of each group; False where too many neighbours of ranks would be read.

    Whatever changed can move a rank by no more than its own number: the value stands among so many neighbours.
    """
    percent, keys = int(one.function[1:]), _keys(asked, table)
    moved = max((len(group.then.get(n, ())) for group in known.values()), default=0)
    if len(known) * (2 * moved + 2) > MOST_NEIGHBOURS:
        return False
    value, present = _measured(of, asked.context)
    part = [F(name) for name in keys]
    ranked = with_values(rows, keys, of, value, present).annotate(
        rank=Window(RowNumber(), partition_by=part, order_by=F("value_of_it").asc()),
        of_all=Window(Count("pk"), partition_by=part),
    )
    near = ranked.filter(
        Q(rank__gte=(F("of_all") * percent + 99) / 100 - moved),
        Q(rank__lte=((F("of_all") + moved) * percent + 99) / 100),
    )
    about: dict[Key, list[tuple[int, int, int]]] = {}
    for *key, rank, number, value in near.values_list(*keys, "rank", "of_all", "value_of_it"):
        about.setdefault(tuple(key), []).append((rank, int(value), number))
    for key, group in known.items():
        neighbours, then = sorted(about.get(key, ())), group.then.get(n, [])
        in_all = (neighbours[0][2] if neighbours else 0) + len(then)
        if in_all:
            below = neighbours[0][0] - 1 if neighbours else 0
            rank = (in_all * percent + 99) // 100
            group.found[n] = sorted([*(value for _, value, _ in neighbours), *then])[rank - below - 1]
    return True


def _is_several(table: Groups) -> bool:
    return any(isinstance(one, Several) for one in (*table.names, *(of for _, of in table.figures)))


def _keys(asked: "Asked", table: Groups) -> dict[str, Any]:
    return {f"key_{n}": key_of(one, asked.context) for n, one in enumerate(table.names)}


def _measured(of: Field, context: Context) -> tuple[Any, Q]:
    measured = measured_of(of, context)
    assert measured is not None  # noqa: S101 - grouping.check made sure
    return measured


# What changed, in plain Python. -------------------------------------------------------------------------------------


def _units(asked: "Asked", table: Groups) -> list[_Unit] | None:
    """What of the rows that changed since counts, as it stood then; None where that cannot be told."""
    assert asked.past is not None  # noqa: S101 - asked as of a moment
    then = [asked.past.again[pk] for pk in asked.past.met]
    if not then:
        return []
    beside = _beside(asked, table) if _is_several(table) else {row.pk: [None] for row in then}
    if beside is None:
        return None
    inner = {other.pk: other for others in beside.values() for other in others if other is not None}
    names, names_beside = Names(then), Names(list(inner.values()))
    grouped = _grouped(asked, table)
    figures = {of.name: of for _, of in table.figures if isinstance(of, Several)}
    counted = {name: _counting(of, asked.context, inner) for name, of in figures.items()}

    def value(of: Field, row: Any, other: Any) -> Any:
        if of.name in grouped:
            return grouped[of.name].get(row.pk)
        if not isinstance(of, Several):
            return _key(of, row, asked.context, names)
        assert of.inner is not None  # noqa: S101 - the registry's own tests make sure
        return None if other is None else names_beside.value(other, of.inner.shows or of.inner.path)

    def measured(one: Aggregate, of: Field | None, row: Any, other: Any) -> Any:
        if of is None or (isinstance(of, Several) and other is not None and other.pk not in counted[of.name]):
            return None
        if one.function == "distinct":
            return value(of, row, other)
        found, at = (of.inner, other) if isinstance(of, Several) else (of, row)
        return found.plain(at) if isinstance(found, Ordered) and at is not None else None

    return [
        _Unit(
            row.pk,
            tuple(value(one, row, other) for one in table.names),
            tuple(measured(one, of, row, other) for one, of in table.figures),
        )
        for row in then
        for other in beside.get(row.pk, ())
    ]


def _counting(of: Several, context: Context, inner: dict[Any, Any]) -> Collection[Any]:
    """Which of the several rows are the field's; which these are never changes."""
    if not of.left or of.rows is None:
        return inner
    return set(of.rows(context.project).filter(pk__in=inner).values_list("pk", flat=True))


def _grouped(asked: "Asked", table: Groups) -> dict[str, dict[Any, Any]]:
    """Of fields that are no column and never change, what the rows that changed are grouped by, by their ids."""
    assert asked.past is not None  # noqa: S101 - asked as of a moment
    fields = (*table.names, *(of for _, of in table.figures if of is not None))
    keys = {one.name: key for one in fields if (key := one.grouped()) is not None}
    rows = asked.entity.of(asked.context.project).filter(pk__in=asked.past.met)
    return {name: dict(rows.values_list("pk", key)) for name, key in keys.items()}


def _key(found: Field, row: Any, context: Context, names: Names) -> Any:
    """What a row is grouped by, as `grouping.key_of` says it to the database."""
    if not isinstance(found, Own) or found.each is None:
        return names.value(row, grouping.column_of(found))
    for word, _ in found.choices:
        test: Test = found.each(word, context)
        if test.holds is not None and test.holds(row):
            return word
    return ""


def _beside(asked: "Asked", table: Groups) -> dict[Any, list[Any]] | None:
    """Of each row that changed its several rows that count, as they stood then, [None] where it has none.

    None where they cannot be made again: where they may change and are no gates, or are of more than one kind.
    """
    assert asked.past is not None  # noqa: S101 - asked as of a moment
    fields = [one for one in (*table.names, *(of for _, of in table.figures)) if isinstance(one, Several)]
    of = fields[0]
    if of.rows is None or len({one.reach for one in fields}) > 1:
        return None
    model, cut, project = of.rows(asked.context.project).model, asked.past.cut, asked.context.project
    mine = asked.entity.of(project).filter(pk__in=asked.past.met)
    rows = grouping.of_the_same(asked, mine, table.names)
    if model is Gate and rows is mine:
        make: Callable[[list[Any]], dict[Any, Any]] = partial(gates.stored, project.id, cut=cut)
    elif of.lasts:
        make = model._default_manager.filter(**{f"{of.told_at}__lte": cut.position}).in_bulk
    else:
        return None
    pairs = list(rows.order_by().values_list("pk", f"{of.reach}__pk"))
    then = make([other for _, other in pairs if other is not None])
    found: dict[Any, list[Any]] = {}
    for pk, other in sorted(set(pairs), key=str):
        if other in then:
            found.setdefault(pk, []).append(then[other])
    if rows is mine:  # those with none count too
        found |= {pk: [None] for pk in asked.past.met if pk not in found}
    return found
