"""The rows of a dry run as pages and commands show them."""

from datetime import UTC, datetime
from typing import Any

from retention.models import RetentionSet
from retention.retention_dry_run import sum_due
from retention.retention_yaml import list_finite_classes


def build_month_rows(row: RetentionSet, now_us: int) -> list[dict[str, Any]]:
    """Return a row for each month and class in which texts go; what is due comes first. Pure."""
    this_month = datetime.fromtimestamp(now_us // 1_000_000, UTC).strftime("%Y-%m")
    rows = [
        _build_row("now", name, numbers)
        for name, numbers in sum_due(row.dry_run, this_month).items()
    ]
    later = sorted(
        (month, name)
        for name in list_finite_classes(row.rules)
        for month in row.dry_run.get(name, {})
        if month > this_month
    )
    return rows + [_build_row(month, name, row.dry_run[name][month]) for month, name in later]


def _build_row(when: str, name: str, numbers: list[int]) -> dict[str, Any]:
    bodies, size, searched, held = numbers
    return {
        "when": when,
        "class": name,
        "bodies": bodies,
        "bytes": size,
        "searched": searched,
        "held": held,
    }
