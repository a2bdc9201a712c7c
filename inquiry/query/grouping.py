"""Groups of matches: `| group tool,agent | count, max(attempts), p95(wait) | top 10`."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Avg, Case, CharField, Count, F, Max, Min, Q, QuerySet, Sum, Value, When, Window
from django.db.models.functions import RowNumber

from inquiry.query import reading
from inquiry.query.entities import Entity
from inquiry.query.fields import Context, Field, Own
from inquiry.query.kinds import Ordered, Several
from inquiry.query.tree import Aggregate, Fault, Grouping, Term

if TYPE_CHECKING:
    from inquiry.query.asking import Asked

MOST: Final = 100  # groups that are told without a top of their own
PLAIN: Final = {"min": Min, "max": Max, "avg": Avg, "sum": Sum}


@dataclass(slots=True)
class Groups:
    """A table. `names` are the fields grouped by, `figures` what was asked of each; `more` when there are more groups.

    Each row is (values of the names, figures); figures of moments and lengths are microseconds.
    """

    names: list[Field]
    figures: list[tuple[Aggregate, Field | None]]
    rows: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = field(default_factory=list)
    more: bool = False


def check(asked: Grouping, entity: Entity) -> None:
    """Raise Fault where a field cannot be grouped by, or a figure not be asked of it."""
    several = 0
    for name, at in asked.names:
        found = reading.field_of(name, entity, at)
        several += isinstance(found, Several)
        if not is_groupable(found) or (isinstance(found, Ordered) and found.kind != "number"):
            raise Fault(at, len(name), f"{found.name} cannot be grouped by; group by {', '.join(groupable(entity))}.")
    if several > 1:
        raise Fault(asked.names[0][1], 1, "Only one of the fields grouped by may have several values.")
    for figure in asked.aggregates:
        if not figure.field:
            continue
        found = reading.field_of(figure.field, entity, figure.at + len(figure.function) + 1)
        if figure.function == "distinct":
            if not is_groupable(found):
                raise Fault(figure.at, len(str(figure)), f"Different values of {found.name} cannot be counted.")
        elif measured_of(found) is None:
            takes = f"{found.name} is {found.takes()}"
            raise Fault(figure.at, len(str(figure)), f"{figure.function} is of numbers, times and lengths; {takes}.")
        elif found.kind == "time" and figure.function in ("avg", "sum"):
            raise Fault(figure.at, len(str(figure)), f"{figure.function} of moments means nothing; min and max do.")


def groupable(entity: Entity) -> list[str]:
    """The names of the fields that can be grouped by."""
    plain = [one for one in entity.fields.values() if is_groupable(one)]
    return [one.name for one in plain if not isinstance(one, Ordered) or one.kind == "number"]


def is_groupable(found: Field) -> bool:
    """Whether rows can be told apart by its value."""
    return bool(column_of(found)) or found.grouped() is not None


def column_of(found: Field) -> str:
    """How an ORM query reaches its value, "" when it cannot."""
    if isinstance(found, Several):
        inner = found.inner
        return found.reached(inner.shows or inner.path) if found.reach and inner is not None else ""
    return found.shows or found.path


def key_of(found: Field, context: Context) -> Any:
    """What rows are grouped by: of a choice that is no column the word that pages show, as its condition has it."""
    if not isinstance(found, Own) or found.each is None:
        return found.grouped() or F(column_of(found))
    words = [When(found.each(word, context).q, then=Value(word)) for word, _ in found.choices]
    return Case(*words, default=Value(""), output_field=CharField())


def measured_of(found: Field, context: Context | None = None) -> tuple[Any, Q] | None:
    """The value of a number, moment or length, and where there is one; None of what cannot be measured.

    As of the moment of `context`, where several rows came one by one: of those that were there.
    """
    if isinstance(found, Ordered):
        return found.compared(), found.present().q
    if not isinstance(found, Several) or not found.reach or not isinstance(found.inner, Ordered):
        return None
    paths = [path for path in (found.inner.path, found.inner.minus) if path]
    value: Any = F(found.reached(paths[0]))
    known = counted_of(found, context) & Q(**{f"{found.reached(path)}__isnull": False for path in paths})
    return (value - F(found.reached(paths[1])) if len(paths) > 1 else value), known


def counted_of(found: Field, context: Context | None = None) -> Q:
    """Which of the several rows that it leads to are the field's: as of the moment of `context`, that were there."""
    if not isinstance(found, Several):
        return Q()
    counted = Q(**{found.reached(lookup): value for lookup, value in found.left})
    if found.lasts and context is not None and context.upto is not None:
        counted &= Q(**{f"{found.reached(found.told_at)}__lte": context.upto})
    return counted


def different_of(found: Field, context: Context) -> Count:
    """How many different values it has."""
    return Count(key_of(found, context), distinct=True, filter=counted_of(found, context) or None)


def with_values(rows: "QuerySet[Any]", keys: dict[str, Any], found: Field, value: Any, known: Q) -> "QuerySet[Any]":
    """Rows with their keys and with what they have of a field as `value_of_it`, one for each of several that it has.

    A condition on several rows of it would be one on any of them: of those that count for the keys it is asked here.
    """
    valued: QuerySet[Any]
    if not known or not isinstance(found, Several):
        valued = rows.filter(known).annotate(**keys, value_of_it=value)
    else:
        valued = rows.annotate(**keys, value_of_it=Case(When(known, then=value))).filter(value_of_it__isnull=False)
    return valued


def heads(asked: "Asked") -> Groups:
    """The table that a grouped query asks for, without its rows."""
    wanted = asked.query.grouping
    assert wanted is not None  # noqa: S101 - asked for only where there is one
    names = [reading.field_of(name, asked.entity, at) for name, at in wanted.names]
    return Groups(
        names,
        [(one, reading.field_of(one.field, asked.entity, one.at) if one.field else None) for one in wanted.aggregates],
    )


def most_of(asked: "Asked") -> int:
    """How many groups are told."""
    wanted = asked.query.grouping
    return (wanted.top if wanted is not None else None) or MOST


def groups(asked: "Asked", rows: "QuerySet[Any]") -> Groups:
    """All groups of the matches, those with most rows first. A row counts once for each value of a field of several."""
    table = heads(asked)
    names, figures = table.names, table.figures
    rows = of_the_same(asked, rows, names).order_by()
    several = any(isinstance(one, Several) for one in (*names, *(of for _, of in figures)))  # joined rows repeat it
    keys = {f"key_{n}": key_of(one, asked.context) for n, one in enumerate(names)}
    made: dict[str, Any] = {"rows_of_it": Count("pk", distinct=True) if several else Count("*")}
    for n, (one, of) in enumerate(figures):
        if of is not None and one.function == "distinct":
            made[f"figure_{n}"] = different_of(of, asked.context)
        elif of is not None and one.function in PLAIN:
            measured = measured_of(of, asked.context)
            assert measured is not None  # noqa: S101 - checked before
            value, known = measured
            made[f"figure_{n}"] = PLAIN[one.function](value, filter=known)
    most = most_of(asked)
    order: list[Any] = ["-rows_of_it", *keys]
    first = figures[0]
    if first[0].function in PLAIN or first[0].function == "distinct":
        order = [F("figure_0").desc(nulls_last=True), *order]
    found = list(rows.values(**keys).annotate(**made).order_by(*order)[: most + 1])
    percentiles = {
        n: _percentiles(rows, keys, one, of) for n, (one, of) in enumerate(figures) if one.function[0] == "p"
    }
    table.more = len(found) > most
    for row in found[:most]:
        key = tuple(row[name] for name in keys)
        values = [
            row["rows_of_it"]
            if one.function == "count"
            else percentiles[n].get(key)
            if n in percentiles
            else row[f"figure_{n}"]
            for n, (one, _) in enumerate(figures)
        ]
        table.rows.append((key, tuple(values)))
    return table


def of_the_same(asked: "Asked", rows: "QuerySet[Any]", names: list[Field]) -> "QuerySet[Any]":
    """Only those of several rows that meet what was asked of them count towards their groups.

    `ruled_in:<2s | group approver` counts whoever said yes within two seconds, and not whoever took longer beside them.
    """
    for one in names:
        if not isinstance(one, Several) or one.rows is None:
            continue
        counted, conditions = one.rows(asked.context.project), 0
        for term in reading.conjuncts(asked.query):
            other = asked.entity.known(term.name) if isinstance(term, Term) else None
            if not isinstance(other, Several) or other.rows is None or other.inner is None or other.reach != one.reach:
                continue
            if isinstance(term, Term) and not any(value.form == "field" for value in term.values):
                met = other.rows(asked.context.project).filter(other.inner.test(term, asked.context).q)
                counted, conditions = counted.filter(pk__in=met.order_by().values("pk")), conditions + 1
        if conditions or one.some:
            rows = rows.filter(**{f"{one.reach}__in": counted.order_by().values("pk")})
    return rows


def _percentiles(
    rows: "QuerySet[Any]", keys: dict[str, F], one: Aggregate, of: Field | None
) -> dict[tuple[Any, ...], Any]:
    """The nearest-rank percentile of each group: the value of the row whose rank is p/100 of them, rounded up."""
    measured = measured_of(of) if of is not None else None
    assert of is not None and measured is not None  # noqa: S101, PT018 - checked before
    value, known = measured
    part = [F(name) for name in keys]
    ranked = with_values(rows, keys, of, value, known).annotate(
        rank=Window(RowNumber(), partition_by=part, order_by=F("value_of_it").asc()),
        of_all=Window(Count("pk"), partition_by=part),
    )
    percent = int(one.function[1:])
    chosen = ranked.filter(Q(rank=(F("of_all") * percent + 99) / 100))
    return {tuple(row[:-1]): row[-1] for row in chosen.values_list(*keys, "value_of_it")}
