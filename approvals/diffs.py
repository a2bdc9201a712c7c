"""Diff of two texts as rows, with a bounded cost for any text.

Pure. Every line of both texts is a row. If comparing costs too much, each full text is one row.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from itertools import accumulate
from typing import Final

MOST_ROWS: Final = 3000  # of one file; above it, each full text is one row
MOST_STEPS: Final = 3_000_000  # for all texts of one call; see _BudgetedMatcher


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a diff: `sign` is "+", "-", "@" for a heading, or " " for context."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class File:
    """Changes of one file. `whole`: the text replaces an unknown previous content."""

    path: str
    added: int
    removed: int
    rows: tuple[Row, ...]
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
class Budget:
    """Steps left for comparing the texts of one call."""

    left: int = MOST_STEPS


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

    def __init__(self, old: Sequence[str], new: Sequence[str], budget: Budget) -> None:
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


def diff(path: str, old: str, new: str, budget: Budget) -> File:
    """Compute the changes of a file in which `old` becomes `new`."""
    before, after = lines_of(old), lines_of(new)
    try:
        rows = _diff_lines(before, after, budget)
    except _TooCostly:
        whole = [Row(sign, text) for sign, text in (("-", old), ("+", new)) if text]
        return File(path, len(after), len(before), tuple(whole))
    if (old == "" or old.endswith("\n")) != (new == "" or new.endswith("\n")) and old and new:
        terminated = "old" if old.endswith("\n") else "new"
        rows.append(Row("@", f"only the {terminated} text ends with a line break"))
    return File(path, count(rows, "+"), count(rows, "-"), tuple(rows))


def _diff_lines(before: list[str], after: list[str], budget: Budget) -> list[Row]:
    if len(before) + len(after) > MOST_ROWS:
        raise _TooCostly
    rows: list[Row] = []
    for tag, start, end, first, last in _BudgetedMatcher(before, after, budget).get_opcodes():
        if tag == "equal":
            rows += [Row(" ", line) for line in before[start:end]]
        else:
            rows += [Row("-", line) for line in before[start:end]] + [
                Row("+", line) for line in after[first:last]
            ]
    return rows


def new_file(path: str, text: str) -> File:
    """Return the changes of a file whose previous content is unknown."""
    lines = lines_of(text)
    rows = (Row("+", text),) if len(lines) > MOST_ROWS else tuple(Row("+", line) for line in lines)
    return File(path, len(lines), 0, rows, whole=True)


def lines_of(text: str) -> list[str]:
    """Split a text at line feeds only; other line separators stay as visible tokens."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def count(rows: Iterable[Row], sign: str) -> int:
    """Count the rows with this sign."""
    return sum(row.sign == sign for row in rows)
