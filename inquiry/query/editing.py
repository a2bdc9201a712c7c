"""Edits the text of a query: facets, bars and forms change what stands in the box, and nothing else."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from inquiry.query import reading
from inquiry.query.entities import ENTITIES, Entity
from inquiry.query.fields import Field
from inquiry.query.syntax import Or, Query, Term

_BARE: Final = re.compile(r"[^\s()\[\]|\",!@*-][^\s()\[\]|\",]*")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def quoted(value: str) -> str:
    """A value as it stands in a query: bare where that reads as itself, else between quotes."""
    plain = _BARE.fullmatch(value) and ".." not in value and not value.endswith("*") and value[0] not in "=<>"
    if plain:
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def moment(us: int) -> str:
    """A moment as it stands in a query, in UTC and as short as it can be."""
    at = _EPOCH + timedelta(microseconds=us)
    form = "%Y-%m-%dT%H:%M:%S.%fZ" if at.microsecond else "%Y-%m-%dT%H:%M:%SZ" if at.second else "%Y-%m-%dT%H:%MZ"
    return at.strftime(form)


def standing(query: Query, field: Field) -> set[str]:
    """The values to which the query narrows `field` by a condition of its own."""
    return {
        one.text for term in _terms_of(field, query) for one in term.values if one.form != "field" and not one.prefix
    }


def narrowed(query: Query, field: Field, value: str) -> str:
    """The text of `query` with one condition more: `field` is `value`."""
    return _with(query, f"{field.name}:{quoted(value)}")


def without(query: Query, field: Field) -> str:
    """The text of `query` without the conditions of their own that are of `field`."""
    return _cut(query, [(term.at, term.end) for term in _terms_of(field, query)])


def between(query: Query, entity: Entity, from_us: int, to_us: int) -> str:
    """The text of `query` with [from_us, to_us) in place of what it said of its entity's time."""
    time = entity.fields[entity.time]
    terms = [node for node in reading.conjuncts(query) if isinstance(node, Term)]
    said = [term for term in terms if term.name in ("since", "until") or _is_of(term, time, query)]
    text = _cut(query, [(term.at, term.end) for term in said])
    return _with(reading.read(text), f"since:{moment(from_us)} until:{moment(to_us)}")


def _terms_of(field: Field, query: Query) -> list[Term]:
    terms = [node for node in reading.conjuncts(query) if isinstance(node, Term)]
    return [term for term in terms if term.operator in ("", "=") and _is_of(term, field, query)]


def _is_of(term: Term, field: Field, query: Query) -> bool:
    return ENTITIES[query.entity].known(term.name) is field


def _cut(query: Query, spans: list[tuple[int, int]]) -> str:
    text = query.text
    for begun, ended in sorted(spans, reverse=True):
        text = f"{text[:begun].rstrip()} {text[ended:].lstrip()}"
    return text.strip()


def _with(query: Query, condition: str) -> str:
    """Append a condition that all matches must meet. What is joined by OR is put between parentheses first."""
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
