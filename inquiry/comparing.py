"""Two sessions call by call: a longest common subsequence, and how what both did went in each. Pure.

Two calls are one where tool and intent are equal. Of an effect whose plan never arrived nobody knows the intent: it is
equal to none.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

MOST: Final = 2_000  # effects of each session, the first ones: the table of both is at most that square, in bits
LONGER: Final = 2.0  # times that differ by this factor …
APART_US: Final = 1_000_000  # … and by this much, are told as different
FOLDED: Final = 5  # so many calls in a row that went alike in both are one row
ASPECTS: Final = ("outcome", "leave", "attempts", "waiting", "reviewers", "duration")


@dataclass(frozen=True, slots=True)
class Call:
    """One effect as it is compared. Times are lengths in microseconds, None where nothing was measured."""

    effect: Any  # ledger.models.Effect
    state: str  # as people see it
    waited_us: int | None = None  # at its gates, for people
    reviewers: tuple[str, ...] = ()  # who voted, by name
    took_us: int | None = None  # from the dispatch to the answer, by the clock of whoever told both

    @property
    def key(self) -> Hashable:
        """What makes two calls one."""
        effect = self.effect
        return (effect.tool, effect.intent_digest) if effect.intent_digest else effect.id


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the comparison: a call of both, or of one alone. `differs` holds those of ASPECTS that do."""

    left: Call | None
    right: Call | None
    differs: tuple[str, ...] = ()

    @property
    def sign(self) -> str:
        """= alike, ≠ the same call that went another way, - only left, + only right."""
        if self.left is None or self.right is None:
            return "+" if self.left is None else "-"
        return "≠" if self.differs else "="

    @property
    def one(self) -> Call:
        """The call that says what was done: of both the left one."""
        if self.left is not None:
            return self.left
        if self.right is None:
            raise ValueError("a line holds a call")
        return self.right


@dataclass(frozen=True, slots=True)
class Stretch:
    """Lines that are shown as one row because all went alike, or a single line; `at` is the first one's number."""

    at: int
    lines: list[Line]

    @property
    def first(self) -> Line:
        return self.lines[0]

    @property
    def last(self) -> Line:
        return self.lines[-1]


def common(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The pairs of indexes of a longest common subsequence, rising in both.

    From one cell of the table of lengths to the next the number rises by one or not at all: a row is a bit for each
    cell, made from the one before by three operations on whole numbers (Hyyrö's). Every row is kept for the way back,
    so it takes len(left) × len(right) bits: half a megabyte for two times MOST.
    """
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    pairs = [(n, n) for n in range(start)]
    left, right = left[start:], right[start:]
    places: dict[Hashable, int] = {}
    for place, key in enumerate(right):
        places[key] = places.get(key, 0) | 1 << place
    whole = (1 << len(right)) - 1
    row, rows = whole, [whole]  # a bit is 0 where the length rises
    for key in left:
        hits = row & places.get(key, 0)
        row = ((row + hits) | (row - hits)) & whole
        rows.append(row)
    back: list[tuple[int, int]] = []
    up, across = len(left), len(right)
    while up and across:
        if left[up - 1] == right[across - 1]:
            up, across = up - 1, across - 1
            back.append((start + up, start + across))
        elif rows[up] >> (across - 1) & 1:
            across -= 1
        else:
            up -= 1
    return pairs + back[::-1]


def lines(left: Sequence[Call], right: Sequence[Call]) -> list[Line]:
    """Both sessions in one order: what is only left stands before what is only right, between two calls of both."""
    found: list[Line] = []
    at_left = at_right = 0
    pairs = common([one.key for one in left], [one.key for one in right])
    for a, b in [*pairs, (len(left), len(right))]:
        found += [Line(one, None) for one in left[at_left:a]]
        found += [Line(None, one) for one in right[at_right:b]]
        if a < len(left) and b < len(right):
            found.append(Line(left[a], right[b], differences(left[a], right[b])))
        at_left, at_right = a + 1, b + 1
    return found


def differences(one: Call, other: Call) -> tuple[str, ...]:
    """Which of ASPECTS differ. Times do where one is LONGER times the other and APART_US more."""
    unlike = {
        "outcome": (one.state, one.effect.outcome) != (other.state, other.effect.outcome),
        "leave": one.effect.leave != other.effect.leave,
        "attempts": one.effect.attempt_count != other.effect.attempt_count,
        "waiting": _far(one.waited_us, other.waited_us),
        "reviewers": set(one.reviewers) != set(other.reviewers),
        "duration": one.took_us is not None and other.took_us is not None and _far(one.took_us, other.took_us),
    }
    return tuple(aspect for aspect in ASPECTS if unlike[aspect])


def _far(one: int | None, other: int | None) -> bool:
    if one is None or other is None:
        return one is not other
    short, long = sorted((one, other))
    return long - short > APART_US and long > LONGER * short


def counted(found: Iterable[Line]) -> Counter[str]:
    """How many lines there are of each sign, and how many of both differ in each aspect."""
    counts: Counter[str] = Counter()
    for line in found:
        counts[line.sign] += 1
        counts.update(line.differs)
    return counts


def folded(found: Iterable[Line], *, whole: bool = False) -> list[Stretch]:
    """Rows: FOLDED and more lines in a row that went alike are one, unless the `whole` is wanted."""
    rows: list[Stretch] = []
    at = 0
    for alike, run in groupby(found, key=lambda line: line.sign == "="):
        same = list(run)
        if alike and len(same) >= FOLDED and not whole:
            rows.append(Stretch(at, same))
        else:
            rows += [Stretch(at + n, [one]) for n, one in enumerate(same)]
        at += len(same)
    return rows
