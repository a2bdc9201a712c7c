"""Snippets of the effects that a full-text query found."""

from collections.abc import Iterator, Sequence
from uuid import UUID

from investigation.fulltext import snippets, word_search
from investigation.fulltext.snippets import Snippet
from investigation.fulltext.word_search import SearchTerm
from investigation.history import search_text
from investigation.query import compiler
from investigation.query.execute import CompiledQuery
from investigation.query.parser.ast import And, Node, Or, Query, TextWords


def query_terms(compiled: CompiledQuery) -> list[SearchTerm]:
    """Return the distinct words that a query of effects requires; negated words are left out."""
    if compiled.entity.name != "effect":
        return []
    term_set: dict[SearchTerm, None] = {}
    for words in list_words(compiled.query):
        term_set |= dict.fromkeys(
            word_search.parse_terms(f"{words.text}*" if words.prefix else words.text)
        )
    return list(term_set)


def list_words(query: Query) -> list[TextWords]:
    """Return the words without a field that a query requires, of effects or of related rows."""
    return [words for node in compiler.top_level_conditions(query) for words in _find_words(node)]


def _find_words(node: Node) -> Iterator[TextWords]:
    if isinstance(node, TextWords):
        yield node
    elif isinstance(node, And | Or):
        for child in node.children:
            yield from _find_words(child)


def load_snippets(compiled: CompiledQuery, effects: Sequence[UUID]) -> dict[UUID, Snippet]:
    """Return by effect the snippet with the most words. Two queries; none without words."""
    search_terms = query_terms(compiled)
    if not search_terms:
        return {}
    rebuilt = compiled.past.rebuilt_rows if compiled.past is not None else {}
    changed_ids = [effect_id for effect_id in effects if effect_id in rebuilt]
    snippets_by_id = (
        snippets.snippets_of_effects(
            [effect_id for effect_id in effects if effect_id not in rebuilt], search_terms
        )
        if effects
        else {}
    )
    if changed_ids and compiled.past is not None:  # Later texts are not part of the past effect.
        snippets_by_id |= snippets.snippets_of_texts(
            search_text.load_past_texts(
                compiled.context.project.id, changed_ids, compiled.past.cut
            ),
            search_terms,
        )
    return snippets_by_id
