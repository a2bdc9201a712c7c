"""Rows of a diff, and the diff of two texts, at a cost that no text can raise beyond its bound.

Pure. Every line of both texts is a row; where comparing them would cost too much, each text is one row, whole.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from itertools import accumulate
from typing import Final

MOST_ROWS: Final = 3000  # of one file; beyond it the two texts stand under each other, whole
MOST_STEPS: Final = 3_000_000  # of comparing all texts of one call; see _Counted


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a diff: `sign` is "+", "-", "@" for a heading, or " " for what stays."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class File:
    """What would change in one file. `whole` says that the text replaces whatever is there, which is not known."""

    path: str
    added: int
    removed: int
    rows: tuple[Row, ...]
    whole: bool = False
    deletes: bool = False

    @property
    def counted(self) -> str:
        """The size of it in words: +2 −1, or that the file goes."""
        lines = f"+{self.added} −{self.removed}"
        if not self.deletes:
            return lines
        return f"{lines}, deletes the file" if self.added or self.removed else "deletes the file"


@dataclass(slots=True)
class Budget:
    """The steps that comparing the texts of one call may still take."""

    left: int = MOST_STEPS


class _TooCostly(Exception):
    """The budget is spent."""


class _Counted(SequenceMatcher[str]):
    """Takes from a budget, before each round, the most that the round can cost; raises _TooCostly.

    A round looks for the longest run of equal lines: for each line of its part of the old text it visits every equal
    line of the whole new one. Two more rounds follow, before and behind that run. Where equal lines never stand
    together, as in c, x, c, x against c, y, c, y, each round finds a single line and leaves all the rest to the next:
    the cost is the cube of the length. No bound on lengths, nor on one round, both stops that and lets an ordinary edit
    of thousands of lines through; so the rounds are counted as they come.
    """

    def __init__(self, old: Sequence[str], new: Sequence[str], budget: Budget) -> None:
        super().__init__(None, old, new, autojunk=False)
        often = Counter(new)
        self._until = list(accumulate((1 + often[line] for line in old), initial=0))  # steps of the lines before each
        self._budget = budget

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """As difflib's, within the budget."""
        steps = self._until[-1 if ahi is None else ahi] - self._until[alo]
        if steps > self._budget.left:
            raise _TooCostly
        self._budget.left -= steps
        return super().find_longest_match(alo, ahi, blo, bhi)


def diff(path: str, old: str, new: str, budget: Budget) -> File:
    """What would change in a file where `old` becomes `new`."""
    before, after = lines_of(old), lines_of(new)
    try:
        rows = _rows(before, after, budget)
    except _TooCostly:
        whole = [Row(sign, text) for sign, text in (("-", old), ("+", new)) if text]
        return File(path, len(after), len(before), tuple(whole))
    if (old == "" or old.endswith("\n")) != (new == "" or new.endswith("\n")) and old and new:
        rows.append(Row("@", f"only the {'old' if old.endswith(chr(10)) else 'new'} text ends with a line break"))
    return File(path, count(rows, "+"), count(rows, "-"), tuple(rows))


def _rows(before: list[str], after: list[str], budget: Budget) -> list[Row]:
    if len(before) + len(after) > MOST_ROWS:
        raise _TooCostly
    found: list[Row] = []
    for tag, start, end, first, last in _Counted(before, after, budget).get_opcodes():
        if tag == "equal":
            found += [Row(" ", line) for line in before[start:end]]
        else:
            found += [Row("-", line) for line in before[start:end]] + [Row("+", line) for line in after[first:last]]
    return found


def new_file(path: str, text: str) -> File:
    """A file of which only the new text is known."""
    lines = lines_of(text)
    rows = (Row("+", text),) if len(lines) > MOST_ROWS else tuple(Row("+", line) for line in lines)
    return File(path, len(lines), 0, rows, whole=True)


def lines_of(text: str) -> list[str]:
    """The lines of a text; other characters that some programs break lines at stay within them, as visible tokens."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def count(rows: Iterable[Row], sign: str) -> int:
    """How many rows have this sign."""
    return sum(row.sign == sign for row in rows)
