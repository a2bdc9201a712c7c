"""Rows of a file's diff as pages show them: line numbers and words that differ. Pure.

A row here adds to a DiffRow only what follows from the rows themselves. The hash of a card covers
the rows, so a vote stays bound to what was shown.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from approvals.diff.unified import DiffRow, FileDiff
from approvals.diff.word_differences import Spans, WordBudget, find_changed_words

IN_FILE, IN_TEXT, UNNUMBERED = "file", "text", ""
_HUNK: Final = re.compile(r"@@ -([0-9]{1,9})(?:,[0-9]{1,9})? \+([0-9]{1,9})(?:,[0-9]{1,9})? @@.*")
_NO_END: Final = "\\ No newline at end of file"
_MARKED: Final = "*** "
_ADD_FILE: Final = "*** Add File: "
_MAX_ALIGNED: Final = 64  # removed times added lines of a block whose pairs are searched
_WORD: Final = re.compile(r"\w+")


class ShownRow(NamedTuple):
    """A row with its line numbers, None where it has none, and the spans that differ."""

    sign: str
    text: str
    old: int | None
    new: int | None
    spans: Spans = ()


def find_numbering(file: FileDiff) -> str:
    """Return what the line numbers of a file count: lines of the file, of the text, or nothing."""
    headings = [row.text for row in file.rows if row.sign == "@"]
    if any(text.startswith(_MARKED) for text in headings):
        # A patch for apply_patch names places by their text, except in a new file.
        return IN_FILE if any(text.startswith(_ADD_FILE) for text in headings) else UNNUMBERED
    if file.whole or any(_HUNK.fullmatch(text) for text in headings):
        return IN_FILE
    return IN_TEXT


def build_shown_rows(file: FileDiff, budget: WordBudget) -> list[ShownRow]:
    """Number the rows of a file and mark the words that differ; every row is kept, in order."""
    spans = dict(_mark_rows(file.rows, budget))
    return [
        row._replace(spans=spans[index]) if index in spans else row
        for index, row in enumerate(_number_rows(file))
    ]


def _number_rows(file: FileDiff) -> Iterator[ShownRow]:
    numbered = find_numbering(file) != UNNUMBERED
    old = new = 1
    for sign, text in ((row.sign, row.text) for row in file.rows):
        if sign == "@":
            if match := _HUNK.fullmatch(text):
                old, new = int(match[1]), int(match[2])
            yield ShownRow(sign, text, None, None)
            continue
        yield ShownRow(
            sign,
            text,
            old if numbered and sign != "+" else None,
            new if numbered and sign != "-" else None,
        )
        lines = 1 + text.removesuffix("\n").count("\n")
        old += lines * (sign != "+")
        new += lines * (sign != "-")


def _mark_rows(rows: Sequence[DiffRow], budget: WordBudget) -> Iterator[tuple[int, Spans]]:
    for removed, added in _list_blocks(rows):
        for old, new in _pair_lines(rows, removed, added):
            before, after = find_changed_words(rows[old].text, rows[new].text, budget)
            if before:
                yield old, before
            if after:
                yield new, after


def _list_blocks(rows: Sequence[DiffRow]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the removed and the added rows that follow each other, as indexes."""
    removed: list[int] = []
    added: list[int] = []
    for index, row in enumerate(rows):
        if row.sign == "-" and not added:
            removed.append(index)
        elif row.sign == "+" and removed:
            added.append(index)
        elif row.text != _NO_END or row.sign != "@":
            if added:
                yield removed, added
            removed, added = ([index], []) if row.sign == "-" else ([], [])
    if added:
        yield removed, added


def _pair_lines(
    rows: Sequence[DiffRow], removed: list[int], added: list[int]
) -> Iterator[tuple[int, int]]:
    """Pair the lines of a block: by place if both sides have as many, else by equal words."""
    if len(removed) == len(added) or len(removed) * len(added) > _MAX_ALIGNED:
        yield from zip(removed, added, strict=False)
        return
    words = [set(_WORD.findall(rows[index].text[:400])) for index in added]
    at = 0
    for index in removed:
        own = set(_WORD.findall(rows[index].text[:400]))
        shares = [
            (len(own & other) / max(1, len(own | other)), -place)
            for place, other in enumerate(words[at:], at)
        ]
        share, place = max(shares, default=(0.0, 0))
        if share >= 0.3:
            yield index, added[-place]
            at = 1 - place
