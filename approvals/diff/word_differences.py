"""Find the words that differ between a removed and an added line. Pure.

The cost is bounded: long lines and pairs beyond the budget keep the difference of whole lines.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

MAX_LINE_CHARACTERS: Final = 1_000  # of a line that is split into words
MAX_WORD_STEPS: Final = 20_000  # for all lines of one page: at most 10 ms
_MAX_PRODUCT: Final = 900  # of the words that differ on both sides; above it, they are one span
_MIN_SHARED: Final = 4  # one in this many characters of the shorter line must be equal
# A number with dots is one word, so that 3.4.1 against 3.4.7 is not a lone 1 against a lone 7.
_WORDS: Final = re.compile(r"\d+(?:\.\d+)+|[\w\u0300-\u036f]+|\s+|.", re.DOTALL)

Spans = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class WordBudget:
    """Steps left for comparing the words of one page."""

    left: int = MAX_WORD_STEPS


def find_changed_words(old: str, new: str, budget: WordBudget) -> tuple[Spans, Spans]:
    """Return the spans of both lines that differ, as offsets.

    Both are empty if the lines share too little, are too long, or the budget is spent.
    """
    if max(len(old), len(new)) > MAX_LINE_CHARACTERS or budget.left <= 0:
        return (), ()
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    first = _count_equal(before, after)
    last = _count_equal(before[first:][::-1], after[first:][::-1])
    budget.left -= 2 + (len(before) + len(after)) // 8
    left, right = before[first : len(before) - last], after[first : len(after) - last]
    if not (left or right):
        return (), ()
    product = len(left) * len(right)
    if product <= 1 or product > min(_MAX_PRODUCT, budget.left):
        changed = [(0, len(left), 0, len(right))]
    else:
        budget.left -= 40 + product
        changed = _find_changed_parts(left, right)
    removed = _find_offsets(before, [(first + a, first + b) for a, b, _c, _d in changed])
    added = _find_offsets(after, [(first + c, first + d) for _a, _b, c, d in changed])
    shorter, spans = min((old, removed), (new, added), key=lambda side: len(side[0].strip()))
    shared = len(shorter.strip()) - sum(end - start for start, end in spans)
    if shared * _MIN_SHARED < len(shorter.strip()) or shared <= 0:
        return (), ()
    return removed, added


def _count_equal(before: Sequence[str], after: Sequence[str]) -> int:
    """Count the equal words at the start."""
    count = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        count += 1
    return count


def _find_changed_parts(left: list[str], right: list[str]) -> list[tuple[int, int, int, int]]:
    """Return the parts that differ as index ranges; blanks between two of them belong to them."""
    parts: list[tuple[int, int, int, int]] = []
    for tag, start, end, first, last in SequenceMatcher(
        None, left, right, autojunk=False
    ).get_opcodes():
        if tag == "equal":
            continue
        if parts and not "".join(left[parts[-1][1] : start]).strip():
            parts[-1] = (parts[-1][0], end, parts[-1][2], last)
        else:
            parts.append((start, end, first, last))
    return parts


def _find_offsets(words: list[str], ranges: list[tuple[int, int]]) -> Spans:
    spans, at, index = [], 0, 0
    for start, end in ranges:
        at += sum(map(len, words[index:start]))
        length = sum(map(len, words[start:end]))
        if length:
            spans.append((at, at + length))
        at, index = at + length, end
    return tuple(spans)
