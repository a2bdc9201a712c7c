"""Find which condition removes most rows when nothing matches.

Conditions are left out one at a time. The number of conditions and the counts are limited.
"""

import operator
from dataclasses import dataclass
from functools import partial
from typing import Final

from inquiry.query import asking, pieces
from inquiry.query.asking import Asked

MOST: Final = 6  # Most conditions that are tried.
COUNTED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Kept:
    """A condition, the number of rows that match without it, and the query without it.

    `count` is at most COUNTED; `more` is True if there are more.
    """

    condition: str
    count: int
    more: bool
    text: str


def kept_away(compiled: Asked) -> list[Kept]:
    """Return the conditions that exclude rows by themselves, the largest count first.

    Runs one query for each of at most MOST conditions. Returns an empty list if no single condition
    excludes all rows.
    """
    exclusions = []
    now_us, project = compiled.context.now_us, compiled.context.project
    for piece in [
        exclusion for exclusion in pieces.pieces(compiled.query) if exclusion.node is not None
    ][:MOST]:
        text = (
            pieces.without(compiled.query, partial(operator.is_, piece.node))
            or compiled.entity.name
        )
        count, more = asking.count(asking.understand(text, project, now_us), COUNTED)
        if count:
            exclusions.append(Kept(piece.text, count, more, text))
    return sorted(exclusions, key=lambda exclusion: -exclusion.count)
