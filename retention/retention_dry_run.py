"""Counts what a retention set would remove, by class and month, before it is in force."""

import time
from typing import Any, Final

from db.clock import now_us
from retention import retention_sets
from retention.body_scan import find_window_end, load_project_holds, read_bodies
from retention.models import RetentionSet
from retention.retention_yaml import compute_expiry_month, list_finite_classes

WINDOW: Final = 5_000  # positions
_EVER: Final = 2**62
Counts = dict[str, dict[str, list[int]]]  # class -> month -> bodies, bytes, searchable, held


def count_retention(row: RetentionSet, ends: float | None = None) -> bool:
    """Continue the dry run until its end, or until the moment `ends`; return whether it ended."""
    holds, counts = load_project_holds(row.project_id), row.dry_run
    position = row.counted_position
    while position < row.counted_end:
        upto = find_window_end(position, row.counted_end, WINDOW)
        counts = count_window(row, counts, holds, position, upto)
        position = upto
        if ends is not None and time.monotonic() > ends:
            retention_sets.save_set(row, dry_run=counts, counted_position=position)
            if position < row.counted_end:
                return False
    retention_sets.save_set(
        row,
        dry_run=counts,
        counted_position=position,
        counted_end=row.counted_end,
        counted_at_us=now_us(),
    )
    return True


def repeat_count(row: RetentionSet) -> None:
    """Count a set at once, over the journal as it is now; the old counts stay until the end."""
    retention_sets.begin_dry_run(row)
    count_retention(row)


def count_window(row: RetentionSet, counts: Counts, holds: Any, after: int, upto: int) -> Counts:
    """Return the counts with those of one window added."""
    keeps = list_finite_classes(row.rules)
    for body in read_bodies(
        row.project_id, row.rules, holds, after=after, upto=upto, received_us=_EVER
    ):
        keep = keeps.get(body.text_class)
        if keep is None:
            continue
        month = compute_expiry_month(keep, body.received_us)
        numbers = counts.setdefault(body.text_class, {}).setdefault(month, [0, 0, 0, 0])
        if body.is_held:
            numbers[3] += 1
        else:
            numbers[0] += 1
            numbers[1] += body.size
            numbers[2] += body.is_searched
    return counts


def sum_due(counts: Counts, month: str) -> dict[str, list[int]]:
    """Return, by class, the sums of the months up to `month`: what goes at once. Pure."""
    return {
        name: [sum(column) for column in zip(*due, strict=True)]
        for name, months in counts.items()
        if (due := [numbers for at, numbers in months.items() if at <= month])
    }
