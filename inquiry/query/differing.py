"""What sets some matches apart: the values of fields that are frequent among them and rare among the rest.

The rest are what the same query finds without one of its conditions, and does not meet it. Both are looked at as facets
are: the newest of them, which is said.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from inquiry.query import asking, editing, facets, pieces, reading
from inquiry.query.asking import Asked
from inquiry.query.fields import Actor, Field
from inquiry.query.tree import Term

TOLD: Final = 10
FEWEST: Final = 2  # a value that fewer of the set have is chance
LEAST: Final = 1.2  # … and so is one that is hardly more frequent
_TIMES: Final = ("since", "until")


@dataclass(frozen=True, slots=True)
class Brush:
    """A condition of a query that may be asked about; both bounds of a time are one."""

    number: int  # from 1
    condition: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A value, how many of the set and of the rest have it, how many times more often, and the query with it.

    `lift` is None where none of the rest has it; `weight` is what they are ordered by.
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
    """`inside` and `outside` are how many were looked at; `more` when there are others."""

    condition: str
    inside: int = 0
    outside: int = 0
    more: bool = False
    rest: str = ""  # the query of the rest
    told: list[Difference] = field(default_factory=list)


def brushes(asked: Asked) -> list[Brush]:
    """What can be asked about."""
    if asked.query.grouping is not None:
        return []
    return [Brush(number, " ".join(texts)) for number, texts in enumerate(_conditions(asked), 1)]


def apart(asked: Asked, number: int) -> Apart | None:
    """What sets the matches apart by the condition of that number; None where there is no such. A few queries."""
    conditions = _conditions(asked)
    if asked.query.grouping is not None or not 1 <= number <= len(conditions):
        return None
    texts = conditions[number - 1]
    nodes = [one.node for one in pieces.pieces(asked.query) if one.text in texts]
    without = pieces.without(asked.query, lambda node: any(node is one for one in nodes))
    rest = editing.added(reading.read(without), f"-({' '.join(texts)})")
    inside = facets.look(asked)
    outside = facets.look(asking.understand(rest, asked.context.project, asked.context.now_us))
    found = Apart(" ".join(texts), len(inside.times), len(outside.times), inside.more or outside.more, rest)
    said = [asked.entity.known(node.name) for node in nodes if isinstance(node, Term)]
    for name, counted in inside.counted.items():
        one = asked.entity.fields[name]
        if found.outside and not any(one is known for known in said):
            found.told += _of_field(asked, one, counted, outside.counted[name], found)
    found.told.sort(key=lambda each: (-each.weight, -each.inside))
    del found.told[TOLD:]
    return found


def _conditions(asked: Asked) -> list[list[str]]:
    plain: list[str] = []
    times: list[str] = []
    for one in pieces.pieces(asked.query):
        if one.node is None:
            continue
        bounds = isinstance(one.node, Term) and one.node.name in _TIMES
        (times if bounds else plain).append(one.text)
    return [*([one] for one in plain), *([times] if times else [])]


def _of_field(
    asked: Asked, one: Field, counted: "Counter[Any]", others: "Counter[Any]", found: Apart
) -> list[Difference]:
    labels = facets.names_of(asked, counted) if isinstance(one, Actor) else dict(one.choices)
    told = []
    for value, inside in counted.items():
        outside = others.get(value, 0)
        if value in ("", None) or inside < FEWEST or inside * found.outside < LEAST * outside * found.inside:
            continue
        label = labels.get(value, str(value))
        text = editing.narrowed(asked.query, one, label if isinstance(one, Actor) else str(value))
        lift = inside * found.outside / (outside * found.inside) if outside else None
        # Half a row beside each: of many the lift, of few that none of the rest has it is little.
        weight = (inside + 0.5) / (found.inside + 1) * (found.outside + 1) / (outside + 0.5)
        told.append(Difference(one.label, label, inside, outside, lift, weight, text))
    return told
