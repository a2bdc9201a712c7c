"""Edit the text of a query. Facets, bars and forms change only the text in the box."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from investigation.query import compiler
from investigation.query.entity_registry import ENTITIES, Entity
from investigation.query.fields.types import Field
from investigation.query.parser.ast import And, Node, Not, Or, Query, Term

_BARE: Final = re.compile(r"[^\s()\[\]|\",!@*-][^\s()\[\]|\",]*")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def quote_if_needed(value: str) -> str:
    """Return a value as query text: bare where it parses as itself, otherwise quoted."""
    plain = (
        _BARE.fullmatch(value)
        and ".." not in value
        and not value.endswith("*")
        and value[0] not in "=<>"
    )
    if plain:
        return value
    return quote_value(value)


def quote_value(value: str) -> str:
    """Return a value or full-text words in quotes, with quotes and backslashes escaped."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def format_moment(us: int) -> str:
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


def selected_values(query: Query, field: Field) -> set[str]:
    """Return the values to which a top-level condition of the query limits `field`."""
    terms = [
        node
        for node in compiler.top_level_conditions(query)
        if isinstance(node, Term) and _is_of(node, field, query)
    ]
    return {
        value.text
        for term in terms
        for value in term.values
        if value.form != "field" and not value.prefix
    }


def narrow_to_value(query: Query, field: Field, value: str) -> str:
    """Return the text of `query` with the condition that `field` is `value` added."""
    return add_condition(query, f"{field.name}:{quote_if_needed(value)}")


def parse_without_grouping(query: Query) -> Query:
    """Return the query of the rows that are grouped."""
    return compiler.parse_query(query.text[: query.conditions_end].rstrip())


def remove_field(query: Query, field: Field) -> str:
    """Return the text of `query` without its top-level conditions on `field`."""
    return remove_conditions(query, lambda node: _is_of(node, field, query))


def set_time_range(query: Query, entity: Entity, from_us: int, to_us: int, name: str = "") -> str:
    """Return the text of `query` with its time conditions replaced by [from_us, to_us).

    `name` is another field of time than the entity's.
    """
    return add_time_range(parse_without_time(query, entity, name), from_us, to_us, name)


def parse_without_time(query: Query, entity: Entity, name: str = "") -> Query:
    """Return `query` without its top-level time conditions, or those on the field `name`."""
    if not name:
        return compiler.parse_query(remove_time_conditions(query, entity))
    time = entity.fields[name]
    return compiler.parse_query(remove_conditions(query, lambda node: _is_field(node, time, query)))


def add_time_range(plain: Query, from_us: int, to_us: int, name: str = "") -> str:
    """Return the text of `plain`, which has no time conditions, in [from_us, to_us)."""
    since, until = format_moment(from_us), format_moment(to_us)
    return add_condition(
        plain, f"{name}:>={since} {name}:<{until}" if name else f"since:{since} until:{until}"
    )


def remove_time_conditions(query: Query, entity: Entity) -> str:
    """Return the text of `query` without its top-level time conditions."""
    time = entity.fields[entity.time]
    return remove_conditions(query, lambda node: _is_time(node, time, query))


def remove_asof(query: Query) -> str:
    """Return the text of `query` without `asof:`."""
    head, tail = query.text[: query.entity_end].strip(), query.text[query.conditions_end :].strip()
    conditions = [piece.text for piece in split_conditions(query) if piece.node is not None]
    return " ".join(part for part in (head, *conditions, tail) if part)


def _is_time(node: Node, time: Field, query: Query) -> bool:
    if not isinstance(node, Term) or any(value.form == "field" for value in node.values):
        return False
    return node.name in ("since", "until") or ENTITIES[query.entity].find_field(node.name) is time


def _is_field(node: Node, field: Field, query: Query) -> bool:
    return isinstance(node, Term) and ENTITIES[query.entity].find_field(node.name) is field


def _is_of(node: Node, field: Field, query: Query) -> bool:
    if not isinstance(node, Term) or node.operator not in ("", "="):
        return False
    return ENTITIES[query.entity].find_field(node.name) is field


def add_condition(query: Query, condition: str) -> str:
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


_CLOSING: Final = re.compile(r"[\s)]*\)")  # Closing parentheses belong to the condition before.
_JOINED: Final = re.compile(r"\s*(?:AND(?=[\s(]))?\s*")
_QUOTED: Final = re.compile(r'"(?:\\.|[^"\\])*"')
_MOMENT: Final = "asof:"


@dataclass(frozen=True, slots=True)
class QueryPart:
    """A condition and its text, which is a valid query by itself. `node` is None for `asof:`."""

    node: Node | None
    text: str


def split_conditions(query: Query) -> list[QueryPart]:
    """Return the top-level conditions in the order of the text."""
    places: list[tuple[int, int, Node | None]] = [
        (*_find_extent(node), node) for node in compiler.top_level_conditions(query)
    ]
    if query.asof is not None:
        at = query.text.rfind(_MOMENT, 0, query.asof.at)
        quotes = 2 if query.asof.form == "quoted" else 0
        places.append((at, query.asof.at + len(query.asof.text) + quotes, None))
    places.sort(key=lambda place: place[0])
    conditions, start = [], query.entity_end
    for number, (_, end, node) in enumerate(places):
        limit = places[number + 1][0] if number + 1 < len(places) else query.conditions_end
        closing, joined = _CLOSING.match(query.text, end, limit), _JOINED.match(query.text, start)
        end = closing.end() if closing else end
        conditions.append(
            QueryPart(
                node,
                _balance_parentheses(query.text[joined.end() if joined else start : end].strip()),
            )
        )
        start = end
    return conditions


def remove_conditions(query: Query, drops: Callable[[Node], bool]) -> str:
    """Return the text of `query` without the conditions for which `drops` is True."""
    kept_texts = [
        piece.text
        for piece in split_conditions(query)
        if piece.node is None or not drops(piece.node)
    ]
    head, tail = query.text[: query.entity_end].strip(), query.text[query.conditions_end :].strip()
    return " ".join(part for part in (head, *kept_texts, tail) if part)


def _balance_parentheses(text: str) -> str:
    """Return the text without parentheses whose counterpart is outside of the text."""
    bare = _QUOTED.sub("", text)
    surplus = bare.count("(") - bare.count(")")
    for _ in range(abs(surplus)):
        text = text.removeprefix("(").lstrip() if surplus > 0 else text.removesuffix(")").rstrip()
    return text


def _find_extent(node: Node) -> tuple[int, int]:
    if isinstance(node, Not):
        return _find_extent(node.child)
    if isinstance(node, And | Or):
        inner = [_find_extent(child) for child in node.children]
        return min(at for at, _ in inner), max(end for _, end in inner)
    return node.at, node.end


__all__ = ["QueryPart", "remove_conditions", "split_conditions"]
