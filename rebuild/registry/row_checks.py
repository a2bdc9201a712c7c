"""What a check of a table's rows consists of, and the list of all checks.

A check folds the journal entries of a batch into rows. It uses the fold that wrote them, and never
what is stored: `rebuild/row_comparison.py` compares the two.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from uuid import UUID

from django.db.models import Model, QuerySet

from db.row_changes import RowChange

# What a batch of a check is about: some sessions of a project, a project, the installation, what
# the rows of all tables refer to, or how the database stores them.
Unit = Literal["session", "project", "installation", "relations", "storage"]
# What the journal shows to be wrong and cannot put right: a stored value has another digest than
# its entry records, or an entry grants what no votes before it allow.
Fault = Literal["altered", "unfounded"]


@dataclass(slots=True)
class FoldedRow:
    """A row as the journal gives it, by column (the attribute of the model, as `session_id`)."""

    key: tuple[Any, ...]  # the values of the check's key columns, in order
    values: dict[str, Any]  # every column that the journal gives, also those of the key
    position: int = 0  # of the entry that last spoke of the row
    # Columns of this row that cannot be recomputed, with the reason; see docs/how-to/operating.md.
    unknown: dict[str, str] = field(default_factory=dict)
    # What is named and not restored: a column, or the fact whose digest is of several columns.
    faults: dict[str, Fault] = field(default_factory=dict)
    is_lost: bool = False  # no entry gives enough to insert the row where it is missing


@dataclass(slots=True)
class RebuildBatch:
    """What is checked at once. `project` is None for the installation.

    A long session is checked in parts: with `effects` only those, with what `per_effect` checks
    compare; with `is_rest` everything else. `effect_count` is then that of the whole session.

    `cache` keeps what several checks of the same batch need, by any key.
    """

    project: UUID | None
    sessions: tuple[UUID, ...] = ()
    cache: dict[Any, Any] = field(default_factory=dict)
    effects: frozenset[UUID] | None = None
    is_rest: bool = False
    effect_count: int = 0

    def copy_unread(self) -> "RebuildBatch":
        """Return the same batch without what was read."""
        return replace(self, cache={})


@dataclass(frozen=True, slots=True)
class RowCheck:
    """How the rows of one table follow from the journal.

    `fold` yields a row for each that the journal knows in the batch; `select` the stored rows of
    the batch. `uncomputed` names the columns that no entry gives, with the reason; `insert_values`
    what they are set to where a row is missing. `restore` is a function of the table's one writer.
    `excuse` says why a stored row may be there although no readable entry gives it; empty: it may
    not. It gets the columns that are compared. `count` gives the number of rows where `select`
    leaves out those that fit.
    """

    model: type[Model]
    key: tuple[str, ...]
    unit: Unit
    fold: Callable[[RebuildBatch], Iterable[FoldedRow]]
    select: Callable[[RebuildBatch], "QuerySet[Any]"]
    restore: Callable[[Sequence[RowChange]], object]
    uncomputed: Mapping[str, str] = field(default_factory=dict)
    insert_values: Callable[[FoldedRow], Mapping[str, Any]] = lambda _row: {}
    per_effect: bool = False
    excuse: Callable[[RebuildBatch, Mapping[str, Any]], str] = lambda _batch, _stored: ""
    count: Callable[[RebuildBatch], int] | None = None

    @property
    def table(self) -> str:
        """Return the name of the table."""
        return self.model._meta.db_table

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that are compared, in the order of the model."""
        fields = self.model._meta.concrete_fields
        return tuple(field.attname for field in fields if field.attname not in self.uncomputed)


_checks: Final[dict[tuple[str, Unit], RowCheck]] = {}


def register_row_check(table: str, check: RowCheck) -> None:
    """Register the check of `table`, after those of the tables that its rows refer to.

    A table may have a check of each unit, for different rows. Raises ValueError for another table
    than the check's own, and for a second check of its rows.
    """
    if table != check.table:
        raise ValueError(f"The check is of {check.table}, not of {table}.")
    if _checks.get((table, check.unit), check) is not check:
        raise ValueError(f"{table} has a check already.")
    _checks[table, check.unit] = check


def list_registered_checks() -> list[RowCheck]:
    """Return the checks that are registered so far, in order."""
    return list(_checks.values())


def list_row_checks(unit: Unit | None = None) -> list[RowCheck]:
    """Return all checks (of one unit) in order. The first call loads their modules."""
    from rebuild.checks import register_row_checks

    register_row_checks()
    return [check for check in _checks.values() if unit is None or check.unit == unit]
