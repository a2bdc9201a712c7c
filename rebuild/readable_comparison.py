"""Compare a table although some entries cannot be read: without these, which are named.

An insider can write an entry with values of types that Gatebook never writes. Which entry ends a
fold is found by folding the journal as it was at earlier moments.
"""

from bisect import bisect_left
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from rebuild.registry import RebuildBatch, RowCheck
from rebuild.row_comparison import TableComparison, compare_rows
from rebuild.snapshots import read_one_snapshot
from rebuild.unreadable_entries import (
    READING_ERRORS,
    EntryFilter,
    UnreadableEntry,
    filter_entries,
)

MAX_LEFT_OUT: Final = 100  # entries; a table with more is not compared
ODD: Final = "its facts or its body have a value of a form that Gatebook does not write"


@dataclass(slots=True)
class ReadableComparison:
    """A comparison without some entries: why each is left out, by position.

    `comparison` is None if the table cannot be compared without them either.
    """

    left_out: dict[int, str] = field(default_factory=dict)
    comparison: TableComparison | None = None


def compare_readable(check: RowCheck, batch: RebuildBatch) -> ReadableComparison:
    """Compare the rows of one table, without the entries that end its fold."""
    result = ReadableComparison()
    while len(result.left_out) <= MAX_LEFT_OUT:
        chosen = EntryFilter(result.left_out.keys())
        outcome = _try_comparison(check, batch, chosen)
        if isinstance(outcome, TableComparison):
            result.comparison = outcome
            break
        if isinstance(outcome, UnreadableEntry) and outcome.position in chosen.read:
            result.left_out[outcome.position] = outcome.words
            continue
        position = _find_odd_entry(check, batch, chosen.left_out, sorted(chosen.read))
        if position is None:
            break
        result.left_out[position] = ODD
    return result


def _try_comparison(
    check: RowCheck, batch: RebuildBatch, chosen: EntryFilter
) -> TableComparison | Exception:
    with filter_entries(chosen), read_one_snapshot():
        try:
            return compare_rows(check, batch.copy_unread())
        except READING_ERRORS as error:
            return error


def _find_odd_entry(
    check: RowCheck, batch: RebuildBatch, left_out: Set[int], positions: Sequence[int]
) -> int | None:
    """Return the first entry up to which the table cannot be compared; None if it is a row."""

    def fails(number: int) -> bool:
        chosen = EntryFilter(left_out, positions[number - 1] if number else 0)
        return not isinstance(_try_comparison(check, batch, chosen), TableComparison)

    number = bisect_left(range(len(positions) + 1), True, key=fails)
    return positions[number - 1] if 0 < number <= len(positions) else None
