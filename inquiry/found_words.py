"""Snippets of the effects that a full-text query found."""

from collections.abc import Iterator, Sequence
from uuid import UUID

from inquiry.asof import texts
from inquiry.query import reading
from inquiry.query.asking import Asked
from inquiry.query.tree import And, Node, Or, Words
from inquiry.words import matching, snippets
from inquiry.words.matching import Term
from inquiry.words.snippets import Snippet


def terms(compiled: Asked) -> list[Term]:
    """Return the distinct words that a query of effects requires; negated words are left out."""
    if compiled.entity.name != "effect":
        return []
    term_set: dict[Term, None] = {}
    for node in reading.conjuncts(compiled.query):
        for words in _find_words(node):
            term_set |= dict.fromkeys(
                matching.terms(f"{words.text}*" if words.prefix else words.text)
            )
    return list(term_set)


def _find_words(node: Node) -> Iterator[Words]:
    if isinstance(node, Words):
        yield node
    elif isinstance(node, And | Or):
        for child in node.children:
            yield from _find_words(child)


def snippets_of(compiled: Asked, effects: Sequence[UUID]) -> dict[UUID, Snippet]:
    """Return by effect the snippet with the most words. Two queries; none without words."""
    search_terms = terms(compiled)
    if not search_terms:
        return {}
    rebuilt = compiled.past.again if compiled.past is not None else {}
    changed_ids = [effect_id for effect_id in effects if effect_id in rebuilt]
    snippets_by_id = (
        snippets.of_effects(
            [effect_id for effect_id in effects if effect_id not in rebuilt], search_terms
        )
        if effects
        else {}
    )
    if changed_ids and compiled.past is not None:  # Later texts are not part of the past effect.
        snippets_by_id |= snippets.of_texts(
            texts.of_effects(compiled.context.project.id, changed_ids, compiled.past.cut),
            search_terms,
        )
    return snippets_by_id
