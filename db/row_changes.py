"""Restore rows to the values that the journal gives. Called only by the writer of each table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import models


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row to restore: columns to set, a row to add (no `key`), or to delete (no `values`)."""

    key: Any  # of the stored row; None for a row that is missing
    values: Mapping[str, Any] | None  # by column; None for a row that the journal does not know


def write_row_changes(model: type[models.Model], changes: Iterable[RowChange]) -> int:
    """Write `changes` to the table of `model`; return how many rows were written.

    Must run inside a transaction. Ends of a row's references are checked when it commits.
    """
    written = 0
    rows = model._base_manager
    for change in changes:
        if change.values is None:
            written += rows.filter(pk=change.key)._raw_delete(using=rows.db)
        elif change.key is None:
            rows.bulk_create([model(**change.values)])
            written += 1
        else:
            written += rows.filter(pk=change.key).update(**change.values)
    return written
