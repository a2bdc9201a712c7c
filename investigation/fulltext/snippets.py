"""Snippets: a short piece of agent text around the first matching word, split into parts.

No markup is added: pages/templatetags/search.py shows every part as untrusted text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from investigation.fulltext import extract
from investigation.fulltext.sql import SearchTerm
from investigation.fulltext.tokenizer import (
    MAX_WORD_CHARACTERS,
    WORD_RUNS,
    distinct_words,
    tokenize,
)

LEADING_CHARACTERS: Final = 60  # Characters shown before the first match.
SNIPPET_CHARACTERS: Final = 240  # Characters of a snippet.
_ELLIPSIS: Final = "…"
_PLAIN: Final = re.compile("[A-Za-z0-9]+")
_CHUNK: Final = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Snippet:
    """A snippet. `label` is that of `extract.load_texts`; `parts` are agent text.

    A part's flag is True if it matched.
    """

    label: str
    parts: list[tuple[str, bool]]


def build_snippet(text: str, terms: Sequence[SearchTerm]) -> list[tuple[str, bool]]:
    """Return the parts of `text` around the first match of `terms`; True marks matches.

    Returns at most SNIPPET_CHARACTERS characters, with an ellipsis where text was cut off, or
    nothing without a match.
    """
    matches = _find_matches(text, terms)
    first = next(matches, None)
    if first is None:
        return []
    start = max(first[0] - LEADING_CHARACTERS, 0)
    end = min(start + SNIPPET_CHARACTERS, len(text))
    parts: list[tuple[str, bool]] = [(_ELLIPSIS, False)] if start else []
    at = start
    for begins, ends in (first, *_matches_before(end, matches)):
        if begins > at:
            parts.append((text[at:begins], False))
        at = min(ends, end)
        parts.append((text[begins:at], True))
    if at < end:
        parts.append((text[at:end], False))
    return [*parts, (_ELLIPSIS, False)] if end < len(text) else parts


def snippets_of_effects(
    effects: Sequence[UUID], terms: Sequence[SearchTerm]
) -> dict[UUID, Snippet]:
    """Return for each effect (of one page) the snippet of the text with the most matching terms.

    Three queries. Effects without matches, or with erased bodies, are absent.
    """
    return snippets_of_texts(extract.load_texts(effects), terms)


def snippets_of_texts(
    texts_by_effect: Mapping[UUID, list[tuple[str, str]]], terms: Sequence[SearchTerm]
) -> dict[UUID, Snippet]:
    """Return the snippets of texts that were loaded in another way.

    Effects without matches, or with erased bodies, are absent.
    """
    snippets = {}
    for identity, texts in texts_by_effect.items():
        label, text = max(
            texts,
            key=lambda candidate: (_count_matches(candidate[1], terms), candidate[0] != "tool"),
        )
        parts = build_snippet(text, terms)
        if label == "tool" and parts:  # The row shows the tool already.
            parts += _show_start(
                next((text for other_label, text in texts if other_label == "arguments"), "")
            )
        if parts:
            snippets[identity] = Snippet(label, parts)
    return snippets


def _show_start(text: str) -> list[tuple[str, bool]]:
    return (
        [
            (
                f"\n{text[:SNIPPET_CHARACTERS]}"
                f"{_ELLIPSIS if len(text) > SNIPPET_CHARACTERS else ''}",
                False,
            )
        ]
        if text
        else []
    )


def _count_matches(text: str, terms: Sequence[SearchTerm]) -> int:
    words = distinct_words(text)
    return sum(_matches_term(words, term) for term in terms)


def _matches_term(words: Iterable[str], term: SearchTerm) -> bool:
    if term.prefix:
        return any(word.startswith(term.word) for word in words)
    return term.word in words


def _matches_before(end: int, matches: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for match in matches:
        if match[0] >= end:
            return
        yield match


def _find_matches(text: str, terms: Sequence[SearchTerm]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each matching word in `text`, in order."""
    words = {term.word for term in terms if not term.prefix}
    prefixes = tuple(term.word for term in terms if term.prefix)

    def is_match(run: str) -> bool:
        return any(word in words or word.startswith(prefixes) for word in tokenize(run))

    if text.isascii():
        for run in _PLAIN.finditer(text):
            word = run[0][:MAX_WORD_CHARACTERS].lower()
            if word in words or word.startswith(prefixes):
                yield run.span()
        return
    # Other scripts change letters when compared, so each chunk between blanks is tokenized by
    # itself. A word that is not a run of letters as written, for example with a separate accent, is
    # marked with its complete chunk.
    for chunk in _CHUNK.finditer(text):
        if is_match(chunk[0]):
            at = chunk.start()
            runs = [
                (at + run.start(), at + run.end())
                for run in WORD_RUNS.finditer(chunk[0])
                if is_match(run[0])
            ]
            yield from runs or [chunk.span()]
