"""When nothing matches: which of the conditions keeps most away. One condition is left out at a time, with bounds."""

import operator
from dataclasses import dataclass
from functools import partial
from typing import Final

from inquiry.query import asking, pieces
from inquiry.query.asking import Asked

MOST: Final = 6  # conditions that are tried
COUNTED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Kept:
    """A condition as it stands in the query, how many rows would match without it, and the query without it.

    `count` is at most COUNTED, and `more` when there are more.
    """

    condition: str
    count: int
    more: bool
    text: str


def kept_away(asked: Asked) -> list[Kept]:
    """What each condition keeps away by itself, most first; those that alone keep nothing away are not told.

    One query for each of at most MOST conditions. Empty where no single condition is to blame.
    """
    found = []
    now_us, project = asked.context.now_us, asked.context.project
    for piece in [one for one in pieces.pieces(asked.query) if one.node is not None][:MOST]:
        text = pieces.without(asked.query, partial(operator.is_, piece.node)) or asked.entity.name
        count, more = asking.count(asking.understand(text, project, now_us), COUNTED)
        if count:
            found.append(Kept(piece.text, count, more, text))
    return sorted(found, key=lambda one: -one.count)
