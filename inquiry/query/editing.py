"""Edit the text of a query. Facets, bars and forms change only the text in the box."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from inquiry.query import pieces, reading
from inquiry.query.entities import ENTITIES, Entity
from inquiry.query.fields import Field
from inquiry.query.tree import Node, Or, Query, Term

_BARE: Final = re.compile(r"[^\s()\[\]|\",!@*-][^\s()\[\]|\",]*")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def quoted(value: str) -> str:
    """Return a value as query text: bare where it parses as itself, otherwise quoted."""
    plain = (
        _BARE.fullmatch(value)
        and ".." not in value
        and not value.endswith("*")
        and value[0] not in "=<>"
    )
    if plain:
        return value
    return between_quotes(value)


def between_quotes(value: str) -> str:
    """Return a value or full-text words in quotes, with quotes and backslashes escaped."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def moment(us: int) -> str:
    """Return a moment as query text, in UTC and as short as possible."""
    at = _EPOCH + timedelta(microseconds=us)
    form = (
        "%Y-%m-%dT%H:%M:%S.%fZ"
        if at.microsecond
        else "%Y-%m-%dT%H:%M:%SZ"
        if at.second
        else "%Y-%m-%dT%H:%MZ"
    )
    return at.strftime(form)


def standing(query: Query, field: Field) -> set[str]:
    """Return the values to which a top-level condition of the query limits `field`."""
    terms = [
        node
        for node in reading.conjuncts(query)
        if isinstance(node, Term) and _is_of(node, field, query)
    ]
    return {
        value.text
        for term in terms
        for value in term.values
        if value.form != "field" and not value.prefix
    }


def narrowed(query: Query, field: Field, value: str) -> str:
    """Return the text of `query` with the condition that `field` is `value` added."""
    return added(query, f"{field.name}:{quoted(value)}")


def ungrouped(query: Query) -> Query:
    """Return the query of the rows that are grouped."""
    return reading.read(query.text[: query.conditions_end].rstrip())


def without(query: Query, field: Field) -> str:
    """Return the text of `query` without its top-level conditions on `field`."""
    return pieces.without(query, lambda node: _is_of(node, field, query))


def between(query: Query, entity: Entity, from_us: int, to_us: int) -> str:
    """Return the text of `query` with its time conditions replaced by [from_us, to_us)."""
    return added(
        reading.read(always(query, entity)), f"since:{moment(from_us)} until:{moment(to_us)}"
    )


def lately(query: Query, entity: Entity, age: str) -> str:
    """Return the text of `query` with its time conditions replaced by the last `age` (as 7d)."""
    return added(reading.read(always(query, entity)), f"since:{age}")


def always(query: Query, entity: Entity) -> str:
    """Return the text of `query` without its top-level time conditions."""
    time = entity.fields[entity.time]
    return pieces.without(query, lambda node: _is_time(node, time, query))


def present(query: Query) -> str:
    """Return the text of `query` without `asof:`."""
    head, tail = query.text[: query.entity_end].strip(), query.text[query.conditions_end :].strip()
    conditions = [piece.text for piece in pieces.pieces(query) if piece.node is not None]
    return " ".join(part for part in (head, *conditions, tail) if part)


def _is_time(node: Node, time: Field, query: Query) -> bool:
    if not isinstance(node, Term) or any(value.form == "field" for value in node.values):
        return False
    return node.name in ("since", "until") or ENTITIES[query.entity].known(node.name) is time


def _is_of(node: Node, field: Field, query: Query) -> bool:
    if not isinstance(node, Term) or node.operator not in ("", "="):
        return False
    return ENTITIES[query.entity].known(node.name) is field


def added(query: Query, condition: str) -> str:
    """Return the text of `query` with one more condition that all matches must meet."""
    text = query.text
    head, body, tail = (
        text[: query.entity_end],
        text[query.entity_end : query.conditions_end],
        text[query.conditions_end :],
    )
    body = body.strip()
    if isinstance(query.condition, Or) and not _is_one_part(body):
        body = f"({body})"
    return " ".join(part for part in (head.strip(), body, condition, tail.strip()) if part)


def _is_one_part(body: str) -> bool:
    """Return True if one pair of parentheses encloses the complete text."""
    if not body.startswith("("):
        return False
    depth, in_quotes, index = 0, False, 0
    while index < len(body):
        character = body[index]
        if character == "\\" and in_quotes:
            index += 1
        elif character == '"':
            in_quotes = not in_quotes
        elif not in_quotes:
            depth += (character == "(") - (character == ")")
            if not depth and index < len(body) - 1:
                return False
        index += 1
    return True
