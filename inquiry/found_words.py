"""Where the words that a query asks for stand in the effects that it found."""

from collections.abc import Iterator, Sequence
from uuid import UUID

from inquiry.asof import texts
from inquiry.query import reading
from inquiry.query.asking import Asked
from inquiry.query.tree import And, Node, Or, Words
from inquiry.words import matching, snippets
from inquiry.words.matching import Term
from inquiry.words.snippets import Snippet


def terms(asked: Asked) -> list[Term]:
    """The words that a query of effects asks for, each once; not those that must be absent."""
    if asked.entity.name != "effect":
        return []
    found: dict[Term, None] = {}
    for node in reading.conjuncts(asked.query):
        for words in _words(node):
            found |= dict.fromkeys(matching.terms(f"{words.text}*" if words.prefix else words.text))
    return list(found)


def _words(node: Node) -> Iterator[Words]:
    if isinstance(node, Words):
        yield node
    elif isinstance(node, And | Or):
        for child in node.children:
            yield from _words(child)


def snippets_of(asked: Asked, effects: Sequence[UUID]) -> dict[UUID, Snippet]:
    """By effect the piece of its text that has most of the words; two queries, none where no word was asked for."""
    wanted = terms(asked)
    if not wanted:
        return {}
    again = asked.past.again if asked.past is not None else {}
    changed = [one for one in effects if one in again]
    found = snippets.of_effects([one for one in effects if one not in again], wanted) if effects else {}
    if changed and asked.past is not None:  # what was said of them since is no part of it
        found |= snippets.of_texts(texts.of_effects(asked.context.project.id, changed, asked.past.cut), wanted)
    return found
