"""Split a query's text into its top-level conditions, and remove some of them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from inquiry.query import reading
from inquiry.query.tree import And, Node, Not, Or, Query

_CLOSING: Final = re.compile(r"[\s)]*\)")  # Closing parentheses belong to the condition before.
_JOINED: Final = re.compile(r"\s*(?:AND(?=[\s(]))?\s*")
_QUOTED: Final = re.compile(r'"(?:\\.|[^"\\])*"')
_MOMENT: Final = "asof:"


@dataclass(frozen=True, slots=True)
class Piece:
    """A condition and its text, which is a valid query by itself. `node` is None for `asof:`."""

    node: Node | None
    text: str


def pieces(query: Query) -> list[Piece]:
    """Return the top-level conditions in the order of the text."""
    places: list[tuple[int, int, Node | None]] = [
        (*_find_extent(node), node) for node in reading.conjuncts(query)
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
            Piece(
                node,
                _balance_parentheses(query.text[joined.end() if joined else start : end].strip()),
            )
        )
        start = end
    return conditions


def without(query: Query, drops: Callable[[Node], bool]) -> str:
    """Return the text of `query` without the conditions for which `drops` is True."""
    kept_texts = [
        piece.text for piece in pieces(query) if piece.node is None or not drops(piece.node)
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


__all__ = ["Piece", "pieces", "without"]
