"""Edits the text of a query: facets, bars and forms change what stands in the box, and nothing else."""

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
    """A value as it stands in a query: bare where that reads as itself, else between quotes."""
    plain = _BARE.fullmatch(value) and ".." not in value and not value.endswith("*") and value[0] not in "=<>"
    if plain:
        return value
    return between_quotes(value)


def between_quotes(value: str) -> str:
    """A value, or words to look for, that read as nothing else whatever they hold."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def moment(us: int) -> str:
    """A moment as it stands in a query, in UTC and as short as it can be."""
    at = _EPOCH + timedelta(microseconds=us)
    form = "%Y-%m-%dT%H:%M:%S.%fZ" if at.microsecond else "%Y-%m-%dT%H:%M:%SZ" if at.second else "%Y-%m-%dT%H:%MZ"
    return at.strftime(form)


def standing(query: Query, field: Field) -> set[str]:
    """The values to which the query narrows `field` by a condition of its own."""
    terms = [node for node in reading.conjuncts(query) if isinstance(node, Term) and _is_of(node, field, query)]
    return {one.text for term in terms for one in term.values if one.form != "field" and not one.prefix}


def narrowed(query: Query, field: Field, value: str) -> str:
    """The text of `query` with one condition more: `field` is `value`."""
    return added(query, f"{field.name}:{quoted(value)}")


def ungrouped(query: Query) -> Query:
    """The query of the rows that are grouped."""
    return reading.read(query.text[: query.conditions_end].rstrip())


def without(query: Query, field: Field) -> str:
    """The text of `query` without the conditions of their own that are of `field`."""
    return pieces.without(query, lambda node: _is_of(node, field, query))


def between(query: Query, entity: Entity, from_us: int, to_us: int) -> str:
    """The text of `query` with [from_us, to_us) in place of what it said of its entity's time."""
    return added(reading.read(always(query, entity)), f"since:{moment(from_us)} until:{moment(to_us)}")


def lately(query: Query, entity: Entity, age: str) -> str:
    """The text of `query` with the last `age` (as 7d) in place of what it said of its entity's time."""
    return added(reading.read(always(query, entity)), f"since:{age}")


def always(query: Query, entity: Entity) -> str:
    """The text of `query` without the conditions of their own that are of its entity's time."""
    time = entity.fields[entity.time]
    return pieces.without(query, lambda node: _is_time(node, time, query))


def present(query: Query) -> str:
    """The text of `query` as of now."""
    head, tail = query.text[: query.entity_end].strip(), query.text[query.conditions_end :].strip()
    kept = [one.text for one in pieces.pieces(query) if one.node is not None]
    return " ".join(part for part in (head, *kept, tail) if part)


def _is_time(node: Node, time: Field, query: Query) -> bool:
    if not isinstance(node, Term) or any(one.form == "field" for one in node.values):
        return False
    return node.name in ("since", "until") or ENTITIES[query.entity].known(node.name) is time


def _is_of(node: Node, field: Field, query: Query) -> bool:
    if not isinstance(node, Term) or node.operator not in ("", "="):
        return False
    return ENTITIES[query.entity].known(node.name) is field


def added(query: Query, condition: str) -> str:
    """The text of `query` with a condition more, which all matches must meet."""
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
    """True when one pair of parentheses holds all of it."""
    if not body.startswith("("):
        return False
    depth, in_quotes, place = 0, False, 0
    while place < len(body):
        character = body[place]
        if character == "\\" and in_quotes:
            place += 1
        elif character == '"':
            in_quotes = not in_quotes
        elif not in_quotes:
            depth += (character == "(") - (character == ")")
            if not depth and place < len(body) - 1:
                return False
        place += 1
    return True
