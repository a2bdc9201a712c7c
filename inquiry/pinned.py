"""The text of a query made to last: ages become moments, and `asof:` says up to where the book was read.

Asked tomorrow, it shows what it shows today.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from inquiry.asof.cut import Cut
from inquiry.query import editing, past, reading, values
from inquiry.query.entities import ENTITIES, Entity
from inquiry.query.kinds import Several, Time
from inquiry.query.tree import And, Fault, Node, Not, One, Or, Scope, Term
from journal import horizon

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def pinned(text: str, now_us: int, position: int | None = None) -> str:
    """`text` with its ages as moments before `now_us`, as of then and of `position`: without one, the settled horizon.

    Both are said: what the clock alone decides (a deadline that has passed) stands in no entry.
    A moment of its own that the query names stays. Raises Fault for a text that is no query, and for one that asks
    what nobody can know as of a moment.
    """
    query = reading.read(absolute(text, now_us))
    past.refuse_unkept(query)
    if query.asof is not None:
        return query.text
    cut = Cut(horizon.last_position() if position is None else position, now_us)
    return editing.added(query, f"asof:#{cut.text}")


def absolute(text: str, now_us: int) -> str:
    """`text` with its ages as moments before `now_us`. Raises Fault for a text that is no query."""
    query = reading.read(text)
    entity = ENTITIES[query.entity]
    places = list(_ages(query.condition, entity, now_us)) if query.condition is not None else []
    if query.asof is not None and not query.asof.text.startswith("#"):
        places += _absolute(query.asof, now_us)
    for at, length, words in sorted(places, reverse=True):
        text = f"{text[:at]}{words}{text[at + length :]}"
    return text


def _ages(node: Node, entity: Entity, now_us: int) -> Iterator[tuple[int, int, str]]:
    """What is to be replaced: where it stands, how long it is, and by what."""
    if isinstance(node, And | Or):
        for child in node.children:
            yield from _ages(child, entity, now_us)
    elif isinstance(node, Not):
        yield from _ages(node.child, entity, now_us)
    elif isinstance(node, Scope) and node.condition is not None:
        yield from _ages(node.condition, ENTITIES[node.entity], now_us)
    elif isinstance(node, Term) and (node.name in ("since", "until") or _is_time(node.name, entity)):
        alone = node.name not in ("since", "until") and not node.operator and not node.is_range
        for one in (*node.values, node.low, node.high):
            if one is not None and one.form != "field":
                for at, length, words in _absolute(one, now_us):
                    yield at, length, f">={words}" if alone else words  # an age alone means: since then


def _is_time(name: str, entity: Entity) -> bool:
    field = entity.known(name)
    return isinstance(field.inner if isinstance(field, Several) else field, Time)


def _absolute(one: One, now_us: int) -> list[tuple[int, int, str]]:
    try:
        moment = values.moment(one, now_us)
    except Fault:  # no moment at all: asking says so
        return []
    if not moment.is_age:
        return []
    length = len(one.text) + (2 if one.form == "quoted" else 0)
    # To the microsecond, so that it covers no more of time than the age did.
    return [(one.at, length, (_EPOCH + timedelta(microseconds=moment.from_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))]


__all__ = ["absolute", "pinned"]
