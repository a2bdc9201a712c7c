"""Diff of two texts as rows, with a bounded cost for any text.

Pure. Every line of both texts is a row. If comparing costs too much, each full text is one row.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from itertools import accumulate
from typing import Final

MAX_DIFF_ROWS: Final = 3000  # of one file; above it, each full text is one row
MAX_DIFF_STEPS: Final = 3_000_000  # for all texts of one call; see _BudgetedMatcher


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A line of a diff: `sign` is "+", "-", "@" for a heading, or " " for context."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class FileDiff:
    """Changes of one file. `whole`: the text replaces an unknown previous content."""

    path: str
    added: int
    removed: int
    rows: tuple[DiffRow, ...]
    whole: bool = False
    deletes: bool = False

    @property
    def counted(self) -> str:
        """Size in words: +2 −1, or that the file is deleted."""
        lines = f"+{self.added} −{self.removed}"
        if not self.deletes:
            return lines
        return f"{lines}, deletes the file" if self.added or self.removed else "deletes the file"


@dataclass(slots=True)
class DiffBudget:
    """Steps left for comparing the texts of one call."""

    left: int = MAX_DIFF_STEPS


class _TooCostly(Exception):
    """The budget is spent."""


class _BudgetedMatcher(SequenceMatcher[str]):
    """SequenceMatcher with a budget for the maximum cost of its rounds.

    Raises _TooCostly.

    A round finds the longest run of equal lines: for each line of its part of the old text it
    visits every equal line of the full new text. Two more rounds follow, before and after that run.
    If equal lines are never adjacent, as in c, x, c, x against c, y, c, y, each round finds a
    single line: the cost is the cube of the length. A bound on lengths or on a single round would
    either miss that or refuse ordinary edits of thousands of lines; so the budget counts rounds.
    """

    def __init__(self, old: Sequence[str], new: Sequence[str], budget: DiffBudget) -> None:
        super().__init__(None, old, new, autojunk=False)
        often = Counter(new)
        # Steps of all lines before each line.
        self._until = list(accumulate((1 + often[line] for line in old), initial=0))
        self._budget = budget

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        """Find the longest match as difflib does, within the budget."""
        steps = self._until[-1 if ahi is None else ahi] - self._until[alo]
        if steps > self._budget.left:
            raise _TooCostly
        self._budget.left -= steps
        return super().find_longest_match(alo, ahi, blo, bhi)


def diff_texts(path: str, old: str, new: str, budget: DiffBudget) -> FileDiff:
    """Compute the changes of a file in which `old` becomes `new`."""
    before, after = split_lines(old), split_lines(new)
    try:
        rows = _diff_lines(before, after, budget)
    except _TooCostly:
        whole = [DiffRow(sign, text) for sign, text in (("-", old), ("+", new)) if text]
        return FileDiff(path, len(after), len(before), tuple(whole))
    if (old == "" or old.endswith("\n")) != (new == "" or new.endswith("\n")) and old and new:
        terminated = "old" if old.endswith("\n") else "new"
        rows.append(DiffRow("@", f"only the {terminated} text ends with a line break"))
    return FileDiff(path, count_diff_rows(rows, "+"), count_diff_rows(rows, "-"), tuple(rows))


def _diff_lines(before: list[str], after: list[str], budget: DiffBudget) -> list[DiffRow]:
    if len(before) + len(after) > MAX_DIFF_ROWS:
        raise _TooCostly
    rows: list[DiffRow] = []
    for tag, start, end, first, last in _BudgetedMatcher(before, after, budget).get_opcodes():
        if tag == "equal":
            rows += [DiffRow(" ", line) for line in before[start:end]]
        else:
            rows += [DiffRow("-", line) for line in before[start:end]] + [
                DiffRow("+", line) for line in after[first:last]
            ]
    return rows


def diff_new_file(path: str, text: str) -> FileDiff:
    """Return the changes of a file whose previous content is unknown."""
    lines = split_lines(text)
    rows = (
        (DiffRow("+", text),)
        if len(lines) > MAX_DIFF_ROWS
        else tuple(DiffRow("+", line) for line in lines)
    )
    return FileDiff(path, len(lines), 0, rows, whole=True)


def split_lines(text: str) -> list[str]:
    """Split a text at line feeds only; other line separators stay as visible tokens."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def count_diff_rows(rows: Iterable[DiffRow], sign: str) -> int:
    """Count the rows with this sign."""
    return sum(row.sign == sign for row in rows)
