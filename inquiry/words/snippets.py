"""Where the words that were asked for stand: a short piece of agents' text around the first of them, cut into parts.

Nothing here marks anything up: inquiry/templatetags/found.py shows every part as untrusted text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from inquiry.words import reading
from inquiry.words.column import Term
from inquiry.words.cutting import LONGEST, RUNS, cut, distinct

BEFORE: Final = 60  # characters shown before the first match
SHOWN: Final = 240  # characters of a snippet, what was cut off not counted
_ELLIPSIS: Final = "…"
_PLAIN: Final = re.compile("[A-Za-z0-9]+")
_CHUNK: Final = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Snippet:
    """`label` is a word of ours (tool, target, arguments, result); parts are agents' text, True for what matched."""

    label: str
    parts: list[tuple[str, bool]]


def snippet(text: str, terms: Sequence[Term]) -> list[tuple[str, bool]]:
    """A piece of `text` around the first word that `terms` ask for, in parts; True for those that match.

    At most SHOWN characters, and an ellipsis where something was cut off; empty when nothing of it was asked for.
    """
    matches = _matches(text, terms)
    first = next(matches, None)
    if first is None:
        return []
    start = max(first[0] - BEFORE, 0)
    end = min(start + SHOWN, len(text))
    parts: list[tuple[str, bool]] = [(_ELLIPSIS, False)] if start else []
    at = start
    for begins, ends in (first, *_before(end, matches)):
        if begins > at:
            parts.append((text[at:begins], False))
        at = min(ends, end)
        parts.append((text[begins:at], True))
    if at < end:
        parts.append((text[at:end], False))
    return [*parts, (_ELLIPSIS, False)] if end < len(text) else parts


def of_effects(effects: Sequence[UUID], terms: Sequence[Term]) -> dict[UUID, Snippet]:
    """For each effect (a page of them) the snippet of that of its texts which has most of `terms`. Three queries.

    Effects of which nothing was asked for, or whose bodies were erased meanwhile, are missing.
    """
    return of_texts(reading.texts(effects), terms)


def of_texts(found: Mapping[UUID, list[tuple[str, str]]], terms: Sequence[Term]) -> dict[UUID, Snippet]:
    """The same of texts that were read in another way.

    Effects of which nothing was asked for, or whose bodies were erased meanwhile, are missing.
    """
    told = {}
    for identity, texts in found.items():
        label, text = max(texts, key=lambda one: (_how_many(one[1], terms), one[0] != "tool"))
        parts = snippet(text, terms)
        if label == "tool" and parts:  # which the row says already
            parts += _beginning(next((text for other, text in texts if other == "arguments"), ""))
        if parts:
            told[identity] = Snippet(label, parts)
    return told


def _beginning(text: str) -> list[tuple[str, bool]]:
    return [(f"\n{text[:SHOWN]}{_ELLIPSIS if len(text) > SHOWN else ''}", False)] if text else []


def _how_many(text: str, terms: Sequence[Term]) -> int:
    words = distinct(text)
    return sum(_is_asked(words, term) for term in terms)


def _is_asked(words: Iterable[str], term: Term) -> bool:
    if term.prefix:
        return any(word.startswith(term.word) for word in words)
    return term.word in words


def _before(end: int, matches: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for one in matches:
        if one[0] >= end:
            return
        yield one


def _matches(text: str, terms: Sequence[Term]) -> Iterator[tuple[int, int]]:
    """Where in `text` words stand that are asked for: beginnings and ends, in their order."""
    whole = {term.word for term in terms if not term.prefix}
    begun = tuple(term.word for term in terms if term.prefix)

    def asked(run: str) -> bool:
        return any(word in whole or word.startswith(begun) for word in cut(run))

    if text.isascii():
        for run in _PLAIN.finditer(text):
            word = run[0][:LONGEST].lower()
            if word in whole or word.startswith(begun):
                yield run.span()
        return
    # In other scripts letters change as they are compared, and what stands between blanks is cut by itself. A word that
    # is no run of letters as written, an accent being apart, say, is marked with all that it hangs together with.
    for chunk in _CHUNK.finditer(text):
        if asked(chunk[0]):
            at = chunk.start()
            runs = [(at + run.start(), at + run.end()) for run in RUNS.finditer(chunk[0]) if asked(run[0])]
            yield from runs or [chunk.span()]
