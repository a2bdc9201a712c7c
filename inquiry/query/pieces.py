"""Which stretch of a query's text says which of the conditions all of which must hold, and the text without some."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from inquiry.query import reading
from inquiry.query.tree import And, Node, Not, Or, Query

_CLOSING: Final = re.compile(r"[\s)]*\)")  # what still belongs to the condition before
_JOINED: Final = re.compile(r"\s*(?:AND(?=[\s(]))?\s*")
_QUOTED: Final = re.compile(r'"(?:\\.|[^"\\])*"')
_MOMENT: Final = "asof:"


@dataclass(frozen=True, slots=True)
class Piece:
    """One condition and the text that says it, which reads alone. `node` is None for `asof:`."""

    node: Node | None
    text: str


def pieces(query: Query) -> list[Piece]:
    """The conditions that all must hold, in the order of the text."""
    places: list[tuple[int, int, Node | None]] = [(*_extent(node), node) for node in reading.conjuncts(query)]
    if query.asof is not None:
        at = query.text.rfind(_MOMENT, 0, query.asof.at)
        quotes = 2 if query.asof.form == "quoted" else 0
        places.append((at, query.asof.at + len(query.asof.text) + quotes, None))
    places.sort(key=lambda place: place[0])
    told, start = [], query.entity_end
    for number, (_, end, node) in enumerate(places):
        until = places[number + 1][0] if number + 1 < len(places) else query.conditions_end
        closing, joined = _CLOSING.match(query.text, end, until), _JOINED.match(query.text, start)
        end = closing.end() if closing else end
        told.append(Piece(node, _alone(query.text[joined.end() if joined else start : end].strip())))
        start = end
    return told


def without(query: Query, drops: Callable[[Node], bool]) -> str:
    """The text of `query` without the conditions that `drops` says so of."""
    kept = [one.text for one in pieces(query) if one.node is None or not drops(one.node)]
    head, tail = query.text[: query.entity_end].strip(), query.text[query.conditions_end :].strip()
    return " ".join(part for part in (head, *kept, tail) if part)


def _alone(text: str) -> str:
    """Without a parenthesis whose other half stands around the next condition too."""
    bare = _QUOTED.sub("", text)
    surplus = bare.count("(") - bare.count(")")
    for _ in range(abs(surplus)):
        text = text.removeprefix("(").lstrip() if surplus > 0 else text.removesuffix(")").rstrip()
    return text


def _extent(node: Node) -> tuple[int, int]:
    if isinstance(node, Not):
        return _extent(node.child)
    if isinstance(node, And | Or):
        inner = [_extent(child) for child in node.children]
        return min(at for at, _ in inner), max(end for _, end in inner)
    return node.at, node.end


__all__ = ["Piece", "pieces", "without"]
