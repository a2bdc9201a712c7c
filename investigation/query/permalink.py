"""Make a query permanent: ages become times, and `asof:` fixes the journal position.

The query then always shows the same result.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from investigation.history.moment import JournalCut
from investigation.query import as_of, compiler, edit
from investigation.query.entity_registry import ENTITIES, Entity
from investigation.query.fields.types import MultiValue, Time
from investigation.query.parser import values
from investigation.query.parser.ast import And, Node, Not, Or, QueryError, QueryValue, Scope, Term
from proofs import stable_position

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def pin_query(text: str, now_us: int, position: int | None = None) -> str:
    """Return `text` with ages as times before `now_us`, and `asof:` that time and `position`.

    Without `position`, a stable position of now is used. Both are needed: what depends on the
    clock alone, such as a passed deadline, has no journal entry. A moment that the query names is
    kept. Raises QueryError for invalid queries and for fields that do not support `asof:`.
    """
    query = compiler.parse_query(make_ages_absolute(text, now_us))
    as_of.reject_unrecorded_fields(query)
    if query.asof is not None:
        return query.text
    cut = JournalCut(load_pinned_position() if position is None else position, now_us)
    return edit.add_condition(query, f"asof:#{cut.text}")


def load_pinned_position() -> int:
    """Return a stable position of now. Waits a moment for those who write. Raises QueryError."""
    try:
        return stable_position.load_recent_position()
    except stable_position.UnstableError as error:
        raise QueryError(0, 0, str(error)) from None


def find_position(text: str) -> int | None:
    """Return the position that `asof:` pins a query to; None for a moment or no `asof:`.

    Raises QueryError for invalid queries.
    """
    asof = compiler.parse_query(text).asof
    digits = asof.text.removeprefix("#").partition("@")[0] if asof is not None else ""
    return int(digits) if digits.isascii() and digits.isdigit() else None


def make_ages_absolute(text: str, now_us: int) -> str:
    """Return `text` with ages as times before `now_us`. Raises QueryError for invalid queries."""
    query = compiler.parse_query(text)
    entity = ENTITIES[query.entity]
    places = (
        list(_find_ages(query.condition, entity, now_us)) if query.condition is not None else []
    )
    if query.asof is not None and not query.asof.text.startswith("#"):
        places += _replace_age(query.asof, now_us)
    for at, length, replacement in sorted(places, reverse=True):
        text = f"{text[:at]}{replacement}{text[at + length :]}"
    return text


def _find_ages(node: Node, entity: Entity, now_us: int) -> Iterator[tuple[int, int, str]]:
    """Yield the texts to replace: start, length and replacement."""
    if isinstance(node, And | Or):
        for child in node.children:
            yield from _find_ages(child, entity, now_us)
    elif isinstance(node, Not):
        yield from _find_ages(node.child, entity, now_us)
    elif isinstance(node, Scope) and node.condition is not None:
        yield from _find_ages(node.condition, ENTITIES[node.entity], now_us)
    elif isinstance(node, Term) and (
        node.name in ("since", "until") or _is_time(node.name, entity)
    ):
        is_bare = node.name not in ("since", "until") and not node.operator and not node.is_range
        for value in (*node.values, node.low, node.high):
            if value is not None and value.form != "field":
                for at, length, time_text in _replace_age(value, now_us):
                    # An age alone means since then.
                    yield at, length, f">={time_text}" if is_bare else time_text


def _is_time(name: str, entity: Entity) -> bool:
    field = entity.find_field(name)
    return isinstance(field.inner if isinstance(field, MultiValue) else field, Time)


def _replace_age(value: QueryValue, now_us: int) -> list[tuple[int, int, str]]:
    try:
        moment = values.parse_time(value, now_us)
    except QueryError:  # Not a time: running the query reports it.
        return []
    if not moment.is_age:
        return []
    length = len(value.text) + (2 if value.form == "quoted" else 0)
    # To the microsecond, so that it covers no more time than the age did.
    return [
        (
            value.at,
            length,
            (_EPOCH + timedelta(microseconds=moment.from_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        )
    ]


__all__ = ["make_ages_absolute", "pin_query"]
