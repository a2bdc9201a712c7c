"""Values that are frequent among some matches and rare among the rest (lift analysis).

The rest are the rows that the same query finds without one of its conditions and that do not meet
that condition. Both sets are sampled like facets: the newest rows of each. The page states this.
"""

import operator
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from investigation.query import compiler, edit, execute, facets
from investigation.query.execute import CompiledQuery
from investigation.query.fields.types import Actor, Field
from investigation.query.parser.ast import Query, Term
from investigation.query.spelling import find_nearest_word
from ledger.models import Effect

MAX_TOOLS: Final = 1_000  # names that are compared with an unknown one
MAX_DIFFERENCES: Final = 10
MIN_ROWS: Final = 2  # Values of fewer matches are chance.
MIN_LIFT: Final = 1.2  # A smaller ratio is chance, too.
_TIMES: Final = ("since", "until")


@dataclass(frozen=True, slots=True)
class AnalysedCondition:
    """A condition that can be analysed; both bounds of a time count as one."""

    number: int  # Counted from 1.
    condition: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A value, its counts in the set and in the rest, its lift, and the query with it.

    `lift` is None if no row of the rest has the value; `weight` is the sort key.
    """

    label: str
    value: str
    inside: int
    outside: int
    lift: float | None
    weight: float
    text: str


@dataclass(frozen=True, slots=True)
class DistinguishingValues:
    """The analysis of one condition.

    `inside` and `outside` are the numbers of rows read; `more` is True if there are further rows.
    """

    condition: str
    inside: int = 0
    outside: int = 0
    more: bool = False
    rest: str = ""  # The query of the rest.
    differences: list[Difference] = field(default_factory=list)


def analysable_conditions(query: Query) -> list[AnalysedCondition]:
    """Return the conditions that can be analysed."""
    if query.grouping is not None:
        return []
    return [
        AnalysedCondition(number, " ".join(texts))
        for number, texts in enumerate(_list_conditions(query), 1)
    ]


def find_distinguishing_values(compiled: CompiledQuery, number: int) -> DistinguishingValues | None:
    """Return what distinguishes the matches of condition `number`, or None. A few queries."""
    conditions = _list_conditions(compiled.query)
    if compiled.query.grouping is not None or not 1 <= number <= len(conditions):
        return None
    texts = conditions[number - 1]
    nodes = [piece.node for piece in edit.split_conditions(compiled.query) if piece.text in texts]
    without = edit.remove_conditions(
        compiled.query, lambda node: any(node is piece for piece in nodes)
    )
    rest = edit.add_condition(compiler.parse_query(without), f"-({' '.join(texts)})")
    inside = facets.sample_matches(compiled)
    outside = facets.sample_matches(
        execute.compile_query(rest, compiled.context.project, compiled.context.now_us)
    )
    analysis = DistinguishingValues(
        " ".join(texts), len(inside.times), len(outside.times), inside.more or outside.more, rest
    )
    named_fields = [
        compiled.entity.find_field(node.name) for node in nodes if isinstance(node, Term)
    ]
    differences: list[Difference] = []
    for name, counted in inside.counted.items():
        piece = compiled.entity.fields[name]
        if analysis.outside and not any(piece is named_field for named_field in named_fields):
            differences += _find_field_differences(
                compiled, piece, counted, outside.counted[name], analysis
            )
    differences.sort(key=lambda difference: (-difference.weight, -difference.inside))
    return replace(analysis, differences=differences[:MAX_DIFFERENCES])


def _list_conditions(query: Query) -> list[list[str]]:
    plain: list[str] = []
    times: list[str] = []
    for piece in edit.split_conditions(query):
        if piece.node is None:
            continue
        bounds = isinstance(piece.node, Term) and piece.node.name in _TIMES
        (times if bounds else plain).append(piece.text)
    return [*([piece] for piece in plain), *([times] if times else [])]


def _find_field_differences(
    compiled: CompiledQuery,
    compared_field: Field,
    counted: "Counter[Any]",
    outside_counts: "Counter[Any]",
    analysis: DistinguishingValues,
) -> list[Difference]:
    labels = (
        facets.load_actor_names(compiled, counted)
        if isinstance(compared_field, Actor)
        else dict(compared_field.choices)
    )
    differences = []
    for value, inside in counted.items():
        outside = outside_counts.get(value, 0)
        if (
            value in ("", None)
            or inside < MIN_ROWS
            or inside * analysis.outside < MIN_LIFT * outside * analysis.inside
        ):
            continue
        label = labels.get(value, str(value))
        text = edit.narrow_to_value(
            compiled.query,
            compared_field,
            label if isinstance(compared_field, Actor) else str(value),
        )
        lift = inside * analysis.outside / (outside * analysis.inside) if outside else None
        # Add half a row to each side: of many rows the lift decides; of few rows it counts little
        # that the rest has none.
        weight = (inside + 0.5) / (analysis.inside + 1) * (analysis.outside + 1) / (outside + 0.5)
        differences.append(
            Difference(compared_field.label, label, inside, outside, lift, weight, text)
        )
    return differences


MAX_CONDITIONS_TRIED: Final = 6  # Most conditions that are tried.
EXCLUSION_COUNT_LIMIT: Final = 1_000


@dataclass(frozen=True, slots=True)
class ExcludedRows:
    """A condition, the number of rows that match without it, and the query without it.

    `count` is at most EXCLUSION_COUNT_LIMIT; `more` is True if there are more.
    """

    condition: str
    count: int
    more: bool
    text: str


def find_excluding_conditions(compiled: CompiledQuery) -> list[ExcludedRows]:
    """Return the conditions that exclude rows by themselves, the largest count first.

    Runs one query for each of at most MAX_CONDITIONS_TRIED conditions. Returns an empty list if no
    single condition excludes all rows, or if there is only one.
    """
    exclusions = []
    now_us, project = compiled.context.now_us, compiled.context.project
    conditions = [
        exclusion
        for exclusion in edit.split_conditions(compiled.query)
        if exclusion.node is not None
    ]
    if len(conditions) == 1:
        return []
    for piece in conditions[:MAX_CONDITIONS_TRIED]:
        text = (
            edit.remove_conditions(compiled.query, partial(operator.is_, piece.node))
            or compiled.entity.name
        )
        count, more = execute.count_matches(
            execute.compile_query(text, project, now_us), EXCLUSION_COUNT_LIMIT
        )
        if count:
            exclusions.append(ExcludedRows(piece.text, count, more, text))
    return sorted(exclusions, key=lambda exclusion: -exclusion.count)


@dataclass(frozen=True, slots=True)
class NearestName:
    """A name in a query that no row has, the closest existing name, and the query with it."""

    name: str
    nearest: str
    text: str


_UNKNOWN_NAME: Final = re.compile(r"^“(.+)” is not the name .*; did you mean “(.+)”\?$")


def find_nearest_names(compiled: CompiledQuery) -> list[NearestName]:
    """Return names of agents, people and tools that do not exist, with the closest ones.

    For a query without results. At most two queries, only for a query that names a tool.
    """
    pairs = [match.groups() for note in compiled.notes if (match := _UNKNOWN_NAME.match(note))]
    named_tools = {
        value.text
        for node in compiler.top_level_conditions(compiled.query)
        if isinstance(node, Term) and node.name == "tool"
        for value in node.values
        if value.form != "field" and not value.prefix
    }
    if named_tools:
        tools = list_known_tools(compiled)
        for name in sorted(named_tools - tools):
            nearest = find_nearest_word(name, sorted(tools), most=1)
            pairs += [(name, nearest)] if nearest else []
    return [
        NearestName(name, nearest, _replace_value(compiled.query.text, name, nearest))
        for name, nearest in pairs
    ]


def list_known_tools(compiled: CompiledQuery) -> set[str]:
    """Return the declared tools of the project, and those of its newest effects."""
    project = compiled.context.project
    declared = project.tools.values_list("name", flat=True)[:MAX_TOOLS]
    newest = Effect.objects.filter(project=project).order_by("-opened_position")
    return {*declared, *newest.values_list("tool", flat=True)[:MAX_TOOLS]} - {""}


def _replace_value(text: str, name: str, nearest: str) -> str:
    for written in (edit.quote_value(name), name):
        if f":{written}" in text:
            return text.replace(f":{written}", f":{edit.quote_if_needed(nearest)}")
    return text.replace(name, nearest)
