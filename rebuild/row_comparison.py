"""Compare the rows of a batch with what the journal gives. Writes nothing."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import UUID

from db import raw_sql
from db.row_changes import RowChange
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck

# A row differs in columns, is missing though the journal gives it, or is there though it does not;
# or entries are not of a form that any version of Gatebook wrote; or rows of a bundle are not those
# that were imported; or a value is not the one whose digest its entry has; or a row is gone that no
# entry gives as a whole; or entries grant a request without its votes; or what a row refers to is
# gone, or of another project or session; or an index lacks rows. Only the first three can be
# restored.
Kind = Literal[
    "changed",
    "missing",
    "added",
    "unreadable",
    "imported",
    "altered",
    "lost",
    "unfounded",
    "misplaced",
    "damaged",
]
NOT_RESTORED: Final = (
    *("unreadable", "imported", "altered", "lost", "unfounded"),
    *("misplaced", "damaged"),
)
_SESSION_COLUMNS: Final = ("session_id", "session")
_NOT_A_COLUMN: Final = object()


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One difference. `column`, `stored` and `expected` are of a changed row.

    `position` is that of the entry that last spoke of the row, 0 if none did.
    """

    kind: Kind
    table: str
    project: UUID | None
    session: UUID | None
    key: Mapping[str, Any]
    position: int
    column: str = ""
    stored: Any = None
    expected: Any = None


@dataclass(slots=True)
class TableComparison:
    """The result for one table of a batch.

    `unknown` counts values that could not be compared, by column and reason.
    """

    check: RowCheck
    rows: int = 0
    differences: list[RowDifference] = field(default_factory=list)
    changes: list[RowChange] = field(default_factory=list)
    unknown: Counter[tuple[str, str]] = field(default_factory=Counter)


def compare_batch(batch: RebuildBatch, checks: Iterable[RowCheck]) -> list[TableComparison]:
    """Compare the rows of a batch, table by table, in the order of `checks`."""
    return [compare_rows(check, batch) for check in checks]


def compare_rows(check: RowCheck, batch: RebuildBatch) -> TableComparison:
    """Compare the stored rows of one table with the folded ones.

    The rows are read after the entries: what is written between the two shows as a difference,
    which a second look inside a transaction no longer has.
    """
    result = TableComparison(check)
    folded = {row.key: row for row in check.fold(batch)}
    key_column = check.model._meta.pk.attname
    names = tuple(dict.fromkeys((key_column, *check.key, *check.columns)))
    for stored_values in _read_stored(check, batch, names):
        result.rows += 1
        stored = dict(zip(names, stored_values, strict=True))
        pk, key = stored[key_column], tuple(stored[name] for name in check.key)
        row = folded.pop(key, None)
        reason = check.excuse(batch, stored) if row is None else ""
        if reason:
            result.unknown["*", reason] += 1
            continue
        if row is None and check.unit == "relations":
            result.differences.append(_describe(check, batch, "misplaced", key, stored, 0))
            continue
        if row is None:
            result.differences.append(_describe(check, batch, "added", key, stored, 0))
            result.changes.append(RowChange(pk, None))
            continue
        result.unknown.update(row.unknown.items())
        result.differences += _describe_faults(check, batch, row, stored)
        _compare_columns(check, batch, result, pk, stored, row)
    if check.count is not None:
        result.rows = check.count(batch)
    moved = _load_moved(check, names, folded)
    for row in folded.values():
        result.unknown.update(row.unknown.items())
        if row.key in moved:
            stored = moved[row.key]
            result.differences += _describe_faults(check, batch, row, stored)
            _compare_columns(check, batch, result, stored[key_column], stored, row)
            continue
        result.differences += _describe_faults(check, batch, row, row.values)
        kind: Kind = "lost" if row.is_lost else "missing"
        result.differences.append(_describe(check, batch, kind, row.key, row.values, row.position))
        if row.is_lost:
            continue
        values = {
            name: value for name, value in row.values.items() if name not in row.unknown
        } | dict(check.insert_values(row))
        result.changes.append(RowChange(None, values))
    return result


def _read_stored(
    check: RowCheck, batch: RebuildBatch, names: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield the stored rows of the batch. Of an empty table no query is built: many are empty."""
    if raw_sql.has_rows(check.table):
        yield from check.select(batch).values_list(*names).iterator(2_000)


def _compare_columns(
    check: RowCheck,
    batch: RebuildBatch,
    result: TableComparison,
    pk: Any,
    stored: Mapping[str, Any],
    row: FoldedRow,
) -> None:
    """Add to `result` the columns of a stored row that differ."""
    changed = dict(_find_changed(stored, row))
    if changed:
        result.changes.append(RowChange(pk, {name: row.values[name] for name in changed}))
        result.differences += [
            _describe(check, batch, "changed", row.key, stored, row.position, name, value)
            for name, value in changed.items()
        ]


def _load_moved(
    check: RowCheck, names: Sequence[str], folded: Mapping[tuple[Any, ...], FoldedRow]
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows of these keys that are there, but of another session or project."""
    first = check.key[0]
    keys = sorted({key[0] for key in folded if isinstance(key[0], UUID)})  # not names of a project
    moved = {}
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        part = keys[start : start + _KEYS_AT_ONCE]
        rows = check.model._base_manager.filter(**{f"{first}__in": part})
        for values in rows.values_list(*names):
            row = dict(zip(names, values, strict=True))
            moved[tuple(row[name] for name in check.key)] = row
    return moved


_KEYS_AT_ONCE: Final = 500


def _find_changed(stored: Mapping[str, Any], row: FoldedRow) -> Iterator[tuple[str, Any]]:
    """Yield each column that differs, with the folded value."""
    for name, value in stored.items():
        folded = row.values.get(name, _NOT_A_COLUMN)
        if folded is _NOT_A_COLUMN or name in row.unknown:
            continue
        if folded != value or type(folded) is not type(value):
            yield name, folded


def _describe_faults(
    check: RowCheck, batch: RebuildBatch, row: FoldedRow, values: Mapping[str, Any]
) -> list[RowDifference]:
    """Return what the journal shows to be wrong with a row and cannot put right."""
    return [
        _describe(check, batch, fault, row.key, values, row.position, column)
        for column, fault in row.faults.items()
    ]


def _describe(
    check: RowCheck,
    batch: RebuildBatch,
    kind: Kind,
    key: tuple[Any, ...],
    values: Mapping[str, Any],
    position: int,
    column: str = "",
    expected: Any = None,
) -> RowDifference:
    """Build a difference; `values` are those of the row, stored or folded."""
    session = next(
        (values[name] for name in _SESSION_COLUMNS if isinstance(values.get(name), UUID)), None
    )
    if session is None and len(batch.sessions) == 1:
        session = batch.sessions[0]
    return RowDifference(
        kind,
        check.table,
        batch.project,
        session,
        dict(zip(check.key, key, strict=True)),
        position,
        column,
        values.get(column) if column else None,
        expected,
    )
