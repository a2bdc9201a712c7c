"""Values that are frequent among some matches and rare among the rest (lift analysis).

The rest are the rows that the same query finds without one of its conditions and that do not meet
that condition. Both sets are sampled like facets: the newest rows of each. The page states this.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from inquiry.query import asking, editing, facets, pieces, reading
from inquiry.query.asking import Asked
from inquiry.query.fields import Actor, Field
from inquiry.query.tree import Term

MAX_DIFFERENCES: Final = 10
MIN_ROWS: Final = 2  # Values of fewer matches are chance.
MIN_LIFT: Final = 1.2  # A smaller ratio is chance, too.
_TIMES: Final = ("since", "until")


@dataclass(frozen=True, slots=True)
class Brush:
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


@dataclass(slots=True)
class Apart:
    """The analysis of one condition.

    `inside` and `outside` are the numbers of rows read; `more` is True if there are further rows.
    """

    condition: str
    inside: int = 0
    outside: int = 0
    more: bool = False
    rest: str = ""  # The query of the rest.
    told: list[Difference] = field(default_factory=list)


def brushes(compiled: Asked) -> list[Brush]:
    """Return the conditions that can be analysed."""
    if compiled.query.grouping is not None:
        return []
    return [
        Brush(number, " ".join(texts)) for number, texts in enumerate(_list_conditions(compiled), 1)
    ]


def apart(compiled: Asked, number: int) -> Apart | None:
    """Return what distinguishes the matches of condition `number`, or None. A few queries."""
    conditions = _list_conditions(compiled)
    if compiled.query.grouping is not None or not 1 <= number <= len(conditions):
        return None
    texts = conditions[number - 1]
    nodes = [piece.node for piece in pieces.pieces(compiled.query) if piece.text in texts]
    without = pieces.without(compiled.query, lambda node: any(node is piece for piece in nodes))
    rest = editing.added(reading.read(without), f"-({' '.join(texts)})")
    inside = facets.look(compiled)
    outside = facets.look(
        asking.understand(rest, compiled.context.project, compiled.context.now_us)
    )
    analysis = Apart(
        " ".join(texts), len(inside.times), len(outside.times), inside.more or outside.more, rest
    )
    named_fields = [compiled.entity.known(node.name) for node in nodes if isinstance(node, Term)]
    for name, counted in inside.counted.items():
        piece = compiled.entity.fields[name]
        if analysis.outside and not any(piece is named_field for named_field in named_fields):
            analysis.told += _find_field_differences(
                compiled, piece, counted, outside.counted[name], analysis
            )
    analysis.told.sort(key=lambda difference: (-difference.weight, -difference.inside))
    del analysis.told[MAX_DIFFERENCES:]
    return analysis


def _list_conditions(compiled: Asked) -> list[list[str]]:
    plain: list[str] = []
    times: list[str] = []
    for piece in pieces.pieces(compiled.query):
        if piece.node is None:
            continue
        bounds = isinstance(piece.node, Term) and piece.node.name in _TIMES
        (times if bounds else plain).append(piece.text)
    return [*([piece] for piece in plain), *([times] if times else [])]


def _find_field_differences(
    compiled: Asked,
    compared_field: Field,
    counted: "Counter[Any]",
    outside_counts: "Counter[Any]",
    analysis: Apart,
) -> list[Difference]:
    labels = (
        facets.names_of(compiled, counted)
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
        text = editing.narrowed(
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
