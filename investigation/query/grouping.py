"""Groups of matches: `| group tool,agent | count, max(attempts), p95(wait) | top 10`."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from django.db.models import (
    Avg,
    Case,
    CharField,
    Count,
    F,
    Max,
    Min,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
    Window,
)
from django.db.models.functions import RowNumber

from investigation.query import compiler
from investigation.query.entity_registry import Entity
from investigation.query.fields.row_tests import CompileContext
from investigation.query.fields.types import ComputedChoice, Field, MultiValue, Ordered
from investigation.query.parser.ast import Aggregate, Grouping, QueryError, Term

if TYPE_CHECKING:
    from investigation.query.execute import CompiledQuery

MAX_GROUPS: Final = 100  # Most groups without an explicit `top`.
SQL_AGGREGATES: Final = {"min": Min, "max": Max, "avg": Avg, "sum": Sum}


@dataclass(frozen=True, slots=True)
class GroupTable:
    """A table of groups. `names` are the group fields and `figures` the aggregates.

    `more` is True if there are more groups. Each row is (values of the names, figures); figures of
    times and lengths are in microseconds.
    """

    names: list[Field]
    figures: list[tuple[Aggregate, Field | None]]
    rows: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = field(default_factory=list)
    more: bool = False
    notes: tuple[str, ...] = ()


def check_grouping(grouping: Grouping, entity: Entity) -> None:
    """Raise QueryError if a field cannot be grouped by or does not support an aggregate."""
    several = 0
    for name, at in grouping.names:
        group_field = compiler.get_field(name, entity, at)
        several += isinstance(group_field, MultiValue)
        if not is_groupable(group_field) or (
            isinstance(group_field, Ordered) and group_field.kind != "number"
        ):
            raise QueryError(
                at,
                len(name),
                f"Cannot group by {group_field.name}. Group by "
                f"{', '.join(groupable_fields(entity))}.",
            )
    if several > 1:
        raise QueryError(grouping.names[0][1], 1, "Group by at most one multi-value field.")
    for figure in grouping.aggregates:
        if not figure.field:
            continue
        group_field = compiler.get_field(figure.field, entity, figure.at + len(figure.function) + 1)
        if figure.function == "distinct":
            if not is_groupable(group_field):
                raise QueryError(
                    figure.at,
                    len(str(figure)),
                    f"Cannot count distinct values of {group_field.name}.",
                )
        elif measured_value(group_field) is None:
            takes = f"{group_field.name} is {group_field.takes()}"
            raise QueryError(
                figure.at,
                len(str(figure)),
                f"{figure.function} needs a number, time or length. {takes}.",
            )
        elif group_field.kind == "time" and figure.function in ("avg", "sum"):
            raise QueryError(
                figure.at,
                len(str(figure)),
                f"{figure.function} does not support times. Use min or max.",
            )


def groupable_fields(entity: Entity) -> list[str]:
    """Return the names of the fields that support grouping."""
    group_fields = [
        group_field for group_field in entity.fields.values() if is_groupable(group_field)
    ]
    return [
        group_field.name
        for group_field in group_fields
        if not isinstance(group_field, Ordered) or group_field.kind == "number"
    ]


def is_groupable(group_field: Field) -> bool:
    """Return True if rows can be grouped by the field."""
    return bool(group_column(group_field)) or group_field.grouped() is not None


def group_column(group_field: Field) -> str:
    """Return the ORM path of the field's value, or "" if it has none."""
    if isinstance(group_field, MultiValue):
        inner = group_field.inner
        return (
            group_field.reached(inner.shows or inner.path)
            if group_field.reach and inner is not None
            else ""
        )
    return group_field.shows or group_field.path


def group_key(group_field: Field, context: CompileContext) -> Any:
    """Return the group key. For a choice that is not a column: the word that pages show."""
    if not isinstance(group_field, ComputedChoice) or group_field.each is None:
        return group_field.grouped() or F(group_column(group_field))
    words = [
        When(group_field.each(word, context).q, then=Value(word)) for word, _ in group_field.choices
    ]
    return Case(*words, default=Value(""), output_field=CharField())


def measured_value(
    measured_field: Field, context: CompileContext | None = None
) -> tuple[Any, Q] | None:
    """Return the value of a number, time or length, and the condition that it exists.

    Returns None if the field cannot be measured. As of the moment of `context`, rows that came
    later do not count.
    """
    if isinstance(measured_field, Ordered):
        return measured_field.compared(), measured_field.present().q
    if (
        not isinstance(measured_field, MultiValue)
        or not measured_field.reach
        or not isinstance(measured_field.inner, Ordered)
    ):
        return None
    paths = [path for path in (measured_field.inner.path, measured_field.inner.minus) if path]
    value: Any = F(measured_field.reached(paths[0]))
    is_known = counted_rows_condition(measured_field, context) & Q(
        **{f"{measured_field.reached(path)}__isnull": False for path in paths}
    )
    return (value - F(measured_field.reached(paths[1])) if len(paths) > 1 else value), is_known


def counted_rows_condition(multi_field: Field, context: CompileContext | None = None) -> Q:
    """Return which of the related rows count, as of the moment of `context`."""
    if not isinstance(multi_field, MultiValue):
        return Q()
    counted = Q(**{multi_field.reached(lookup): value for lookup, value in multi_field.left})
    if multi_field.lasts and context is not None and context.upto is not None:
        counted &= Q(**{f"{multi_field.reached(multi_field.reported_at)}__lte": context.upto})
    return counted


def count_distinct(counted_field: Field, context: CompileContext) -> Count:
    """Return the number of distinct values."""
    return Count(
        group_key(counted_field, context),
        distinct=True,
        filter=counted_rows_condition(counted_field, context) or None,
    )


def annotate_values(
    rows: "QuerySet[Any]", keys: dict[str, Any], valued_field: Field, value: Any, is_known: Q
) -> "QuerySet[Any]":
    """Return rows with their keys and the field as `value_of_it`, one row per value.

    A filter on related rows would match any of them, so the condition is applied to the rows that
    count for the keys.
    """
    valued: QuerySet[Any]
    if not is_known or not isinstance(valued_field, MultiValue):
        valued = rows.filter(is_known).annotate(**keys, value_of_it=value)
    else:
        valued = rows.annotate(**keys, value_of_it=Case(When(is_known, then=value))).filter(
            value_of_it__isnull=False
        )
    return valued


def build_table(compiled: "CompiledQuery") -> GroupTable:
    """Return the table of a grouped query without its rows."""
    grouping = compiled.query.grouping
    assert grouping is not None  # noqa: S101 - asked for only where there is one
    names = [compiler.get_field(name, compiled.entity, at) for name, at in grouping.names]
    return GroupTable(
        names,
        [
            (
                aggregate,
                compiler.get_field(aggregate.field, compiled.entity, aggregate.at)
                if aggregate.field
                else None,
            )
            for aggregate in grouping.aggregates
        ],
    )


def max_groups(compiled: "CompiledQuery") -> int:
    """Return the maximum number of groups."""
    grouping = compiled.query.grouping
    return (grouping.top if grouping is not None else None) or MAX_GROUPS


def load_groups(compiled: "CompiledQuery", rows: "QuerySet[Any]") -> GroupTable:
    """Return all groups of the matches, those with most rows first.

    A row counts once for each value of a multi-value field.
    """
    table = build_table(compiled)
    names, figures = table.names, table.figures
    rows = limit_related_rows(compiled, rows, names).order_by()
    several = any(
        isinstance(aggregate, MultiValue) for aggregate in (*names, *(of for _, of in figures))
    )  # Joined rows repeat the row.
    keys = {f"key_{n}": group_key(aggregate, compiled.context) for n, aggregate in enumerate(names)}
    annotations: dict[str, Any] = {
        "rows_of_it": Count("pk", distinct=True) if several else Count("*")
    }
    for n, (aggregate, of) in enumerate(figures):
        if of is not None and aggregate.function == "distinct":
            annotations[f"figure_{n}"] = count_distinct(of, compiled.context)
        elif of is not None and aggregate.function in SQL_AGGREGATES:
            measured = measured_value(of, compiled.context)
            assert measured is not None  # noqa: S101 - checked before
            value, is_known = measured
            annotations[f"figure_{n}"] = SQL_AGGREGATES[aggregate.function](value, filter=is_known)
    most = max_groups(compiled)
    order: list[Any] = ["-rows_of_it", *keys]
    first = figures[0]
    if first[0].function in SQL_AGGREGATES or first[0].function == "distinct":
        order = [F("figure_0").desc(nulls_last=True), *order]
    rows_found = list(rows.values(**keys).annotate(**annotations).order_by(*order)[: most + 1])
    percentiles = {
        n: _load_percentiles(rows, keys, aggregate, of)
        for n, (aggregate, of) in enumerate(figures)
        if aggregate.function[0] == "p"
    }
    shown = []
    for row in rows_found[:most]:
        key = tuple(row[name] for name in keys)
        values = [
            row["rows_of_it"]
            if aggregate.function == "count"
            else percentiles[n].get(key)
            if n in percentiles
            else row[f"figure_{n}"]
            for n, (aggregate, _) in enumerate(figures)
        ]
        shown.append((format_key(names, key), tuple(values)))
    return replace(table, rows=shown, more=len(rows_found) > most)


def format_key(names: list[Field], key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the key of a group as readers see it."""
    return tuple(name.format_group_key(value) for name, value in zip(names, key, strict=True))


def key_rank(value: Any) -> tuple[bool, Any]:
    """Return the rank of a group's value in plain Python: none first, numbers by size."""
    return value is not None, value or 0 if value is None or isinstance(value, int) else str(value)


def limit_related_rows(
    compiled: "CompiledQuery", rows: "QuerySet[Any]", names: list[Field]
) -> "QuerySet[Any]":
    """Limit related rows to those that meet the query's conditions on them.

    `ruled_in:<2s | group approver` counts the people who approved within two seconds, not others
    who voted on the same gate.
    """
    for group_field in names:
        if not isinstance(group_field, MultiValue) or group_field.rows is None:
            continue
        counted, conditions = group_field.rows(compiled.context.project), 0
        for term in compiler.top_level_conditions(compiled.query):
            condition_field = (
                compiled.entity.find_field(term.name) if isinstance(term, Term) else None
            )
            if (
                not isinstance(condition_field, MultiValue)
                or condition_field.rows is None
                or condition_field.inner is None
                or condition_field.reach != group_field.reach
            ):
                continue
            if isinstance(term, Term) and not any(value.form == "field" for value in term.values):
                matching = condition_field.rows(compiled.context.project).filter(
                    condition_field.inner.test(term, compiled.context).q
                )
                counted, conditions = (
                    counted.filter(pk__in=matching.order_by().values("pk")),
                    conditions + 1,
                )
        if conditions or group_field.some:
            rows = rows.filter(**{f"{group_field.reach}__in": counted.order_by().values("pk")})
    return rows


def _load_percentiles(
    rows: "QuerySet[Any]", keys: dict[str, F], aggregate: Aggregate, of: Field | None
) -> dict[tuple[Any, ...], Any]:
    """Return the nearest-rank percentile of each group.

    It is the value of the row whose rank is p/100 of the count, rounded up.
    """
    measured = measured_value(of) if of is not None else None
    assert of is not None and measured is not None  # noqa: S101, PT018 - checked before
    value, is_known = measured
    part = [F(name) for name in keys]
    ranked = annotate_values(rows, keys, of, value, is_known).annotate(
        rank=Window(RowNumber(), partition_by=part, order_by=F("value_of_it").asc()),
        of_all=Window(Count("pk"), partition_by=part),
    )
    percent = int(aggregate.function[1:])
    chosen = ranked.filter(Q(rank=(F("of_all") * percent + 99) / 100))
    return {tuple(row[:-1]): row[-1] for row in chosen.values_list(*keys, "value_of_it")}
