"""Compare two sessions call by call with a longest common subsequence. Pure.

Two calls match if tool and intent are equal. An effect whose plan never arrived has no known intent
and matches none.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

MAX_EFFECTS: Final = (
    2_000  # effects of each session, the first ones; the table has at most MOST² bits
)
TIME_FACTOR: Final = 2.0  # times that differ by this factor …
MIN_DIFFERENCE_US: Final = 1_000_000  # … and by this much count as different
MIN_COLLAPSED: Final = 5  # this many equal calls in a row become one row
ASPECTS: Final = ("outcome", "permission", "attempts", "waiting", "reviewers", "duration")


@dataclass(frozen=True, slots=True)
class Call:
    """An effect to compare. Times are durations (µs), None if not measured."""

    effect: Any  # ledger.models.Effect
    state: str  # the shown state
    waited_us: int | None = None  # time at its gates
    reviewers: tuple[str, ...] = ()  # names of voters
    took_us: int | None = None  # from dispatch to answer, by the clock that reported both

    @property
    def key(self) -> Hashable:
        """Return the key that two matching calls share."""
        effect = self.effect
        return (effect.tool, effect.intent_digest) if effect.intent_digest else effect.id


@dataclass(frozen=True, slots=True)
class ComparisonLine:
    """A call of both sessions or of one; `differs` is a subset of ASPECTS."""

    left: Call | None
    right: Call | None
    differs: tuple[str, ...] = ()

    @property
    def sign(self) -> str:
        """Return = for equal, ≠ for different, - for only left, + for only right."""
        if self.left is None or self.right is None:
            return "+" if self.left is None else "-"
        return "≠" if self.differs else "="

    @property
    def call(self) -> Call:
        """Return the call of the line; the left one if both sessions have it."""
        if self.left is not None:
            return self.left
        if self.right is None:
            raise ValueError("a line holds a call")
        return self.right


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """Equal lines shown as one row; `at` is the number of the first."""

    at: int
    lines: list[ComparisonLine]

    @property
    def first(self) -> ComparisonLine:
        return self.lines[0]

    @property
    def last(self) -> ComparisonLine:
        return self.lines[-1]


def longest_common_subsequence(
    left: Sequence[Hashable], right: Sequence[Hashable]
) -> list[tuple[int, int]]:
    """Return the index pairs of a longest common subsequence, ascending in both.

    From one cell of the table of lengths to the next the number rises by one or not at all. A row
    is therefore one bit per cell, computed from the previous row by three integer operations
    (Hyyrö). Every row is stored for backtracking: len(left) × len(right) bits, half a megabyte for
    two times MAX_EFFECTS.
    """
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    pairs = [(n, n) for n in range(start)]
    left, right = left[start:], right[start:]
    places: dict[Hashable, int] = {}
    for place, key in enumerate(right):
        places[key] = places.get(key, 0) | 1 << place
    all_bits = (1 << len(right)) - 1
    row, rows = all_bits, [all_bits]  # a bit is 0 where the length rises
    for key in left:
        hits = row & places.get(key, 0)
        row = ((row + hits) | (row - hits)) & all_bits
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


def merge_lines(left: Sequence[Call], right: Sequence[Call]) -> list[ComparisonLine]:
    """Merge both sessions in order; between common calls, only-left comes first."""
    merged: list[ComparisonLine] = []
    at_left = at_right = 0
    pairs = longest_common_subsequence([call.key for call in left], [call.key for call in right])
    for a, b in [*pairs, (len(left), len(right))]:
        merged += [ComparisonLine(call, None) for call in left[at_left:a]]
        merged += [ComparisonLine(None, call) for call in right[at_right:b]]
        if a < len(left) and b < len(right):
            merged.append(ComparisonLine(left[a], right[b], differing_aspects(left[a], right[b])))
        at_left, at_right = a + 1, b + 1
    return merged


def differing_aspects(call: Call, other: Call) -> tuple[str, ...]:
    """Return which of ASPECTS differ.

    Times differ if one is TIME_FACTOR times the other and MIN_DIFFERENCE_US more.
    """
    unlike = {
        "outcome": (call.state, call.effect.outcome) != (other.state, other.effect.outcome),
        "permission": call.effect.permission != other.effect.permission,
        "attempts": call.effect.attempt_count != other.effect.attempt_count,
        "waiting": _differ_in_time(call.waited_us, other.waited_us),
        "reviewers": set(call.reviewers) != set(other.reviewers),
        "duration": call.took_us is not None
        and other.took_us is not None
        and _differ_in_time(call.took_us, other.took_us),
    }
    return tuple(aspect for aspect in ASPECTS if unlike[aspect])


def _differ_in_time(first: int | None, other: int | None) -> bool:
    if first is None or other is None:
        return first is not other
    short, long = sorted((first, other))
    return long - short > MIN_DIFFERENCE_US and long > TIME_FACTOR * short


def count_lines(compared: Iterable[ComparisonLine]) -> Counter[str]:
    """Count the lines by sign, and the differences of common calls by aspect."""
    counts: Counter[str] = Counter()
    for line in compared:
        counts[line.sign] += 1
        counts.update(line.differs)
    return counts


def collapse_equal_lines(
    compared: Iterable[ComparisonLine], *, show_all: bool = False
) -> list[ComparisonRow]:
    """Return rows; MIN_COLLAPSED or more equal lines become one, unless `show_all` is set."""
    rows: list[ComparisonRow] = []
    at = 0
    for alike, run in groupby(compared, key=lambda line: line.sign == "="):
        run_lines = list(run)
        if alike and len(run_lines) >= MIN_COLLAPSED and not show_all:
            rows.append(ComparisonRow(at, run_lines))
        else:
            rows += [ComparisonRow(at + n, [single]) for n, single in enumerate(run_lines)]
        at += len(run_lines)
    return rows
