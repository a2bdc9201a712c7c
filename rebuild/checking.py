"""Check all rows against the journal, batch by batch, and restore those that differ.

A difference counts if a second look inside one transaction has it too: between the first look at
the entries and that at the rows, others may have written both.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models import F

from accounts import projects
from accounts.models import SAMPLE_IDS, Project
from db import triggers
from db.clock import now_us
from db.ids import new_uuid7
from investigation.fulltext import store
from investigation.models import EffectText
from journal import entries
from journal.models import Entry
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from rebuild import batches, imported_comparison
from rebuild.damaged_indexes import WORD_INDEX, find_damaged_indexes, has_long_word_index
from rebuild.readable_comparison import compare_readable
from rebuild.registry import RebuildBatch, RowCheck, Unit, list_row_checks
from rebuild.row_comparison import NOT_RESTORED, RowDifference, TableComparison, compare_batch
from rebuild.short_entries import find_short_entries
from rebuild.snapshots import read_one_snapshot
from rebuild.stored_values import find_unreadable_values, read_leniently
from rebuild.unreadable_entries import READING_ERRORS, UnreadableEntry, read_entry_facts

REBUILT: Final = "integrity.rebuilt"
MAX_NAMED_ROWS: Final = 500  # differences in the body of one entry


class RebuildRefused(Exception):
    """Nothing was changed. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What the check of one batch found. `last` is its last session, None for other batches."""

    unit: Unit
    batch: RebuildBatch
    rows: Counter[str]
    differences: tuple[RowDifference, ...]
    unknown: Counter[tuple[str, str, str]]  # table, column, reason

    @property
    def last(self) -> UUID | None:
        return self.batch.sessions[-1] if self.batch.sessions else None


@dataclass(slots=True)
class DifferingBatches:
    """Where rows differ, to be restored: by unit and project; of sessions their ids."""

    parts: dict[tuple[Unit, UUID | None], set[UUID]] = field(default_factory=dict)

    def add(self, result: BatchResult) -> None:
        """Remember the part of a batch that differs."""
        differs = any(difference.kind not in NOT_RESTORED for difference in result.differences)
        if differs:
            sessions = self.parts.setdefault((result.unit, result.batch.project), set())
            named = {difference.session for difference in result.differences}
            sessions |= set(result.batch.sessions) if None in named else named - {None}  # type: ignore[arg-type]

    def list_parts(self) -> Iterator[tuple[Unit, RebuildBatch]]:
        """Yield the batches to restore, the sessions one by one."""
        for (unit, project), sessions in self.parts.items():
            if unit != "session":
                yield unit, RebuildBatch(project)
            for session in sorted(sessions):
                for part in batches.split_batch(RebuildBatch(project, (session,))):
                    yield unit, part


def check_batches(
    project: UUID | None, after: UUID | None = None, tables: Sequence[str] = ()
) -> Iterator[BatchResult]:
    """Check everything (of one project), and yield the result of each batch.

    `after`: the session after which an interrupted run goes on. `tables` limits the check to some.
    A row that no entry gives is named for that only, and not again for what it refers to.
    """
    added: set[tuple[Any, ...]] = set()
    entries_named: set[int] = set()
    with read_leniently():
        for result in _check_all(project, after, tables):
            result = _leave_out_named(result, entries_named)
            named = [(row, (row.table, *row.key.values())) for row in result.differences]
            if result.unit == "relations":
                others = tuple(row for row, key in named if key not in added)
                result = replace(result, differences=others)
            # A name, which begins other keys, may be that of a row in each project.
            added.update(
                key for row, key in named if row.kind == "added" and isinstance(key[1], UUID)
            )
            yield result


def _leave_out_named(result: BatchResult, entries_named: set[int]) -> BatchResult:
    """Return the result without entries that were named before; several batches read some."""
    differences = []
    for row in result.differences:
        if row.kind == "unreadable" and "position" in row.key and row.table == "journal_entry":
            if row.position in entries_named:
                continue
            entries_named.add(row.position)
        differences.append(row)
    return replace(result, differences=tuple(differences))


def _check_all(
    project: UUID | None, after: UUID | None, tables: Sequence[str]
) -> Iterator[BatchResult]:
    """Check everything (of one project): how it is stored first, what rows refer to last."""
    yield from check_storage(tables)
    short = tuple(find_short_entries(project))
    yield BatchResult("installation", RebuildBatch(project), Counter(), short, Counter())
    samples = _load_samples()
    archives = set(Project.objects.filter(archive=True).values_list("id", flat=True))
    for unit, batch in batches.list_batches(project, after):
        if unit == "relations":
            yield from check_relations(project, tables)
            continue
        checks = select_checks(unit, tables)
        if unit == "session" and batch.project in archives:
            yield compare_imported_batch(batch, tables)
        elif batch.project in samples:
            yield _count_made_up(unit, batch, checks)
        elif checks:
            for part in _split_readable(batch):
                yield from _check_batch(unit, part, _select_part(part, checks))


def check_storage(tables: Sequence[str] = ()) -> Iterator[BatchResult]:
    """Check how the database stores the rows of every project, which no other check can see."""
    batch = RebuildBatch(None)
    unknown = Counter[tuple[str, str, str]]()
    if not tables and has_long_word_index():
        unknown[WORD_INDEX, "*", LONG_INDEX] = EffectText.objects.count()
    for find_differences in (find_damaged_indexes, find_unreadable_values):
        yield BatchResult("storage", batch, Counter(), tuple(find_differences(tables)), +unknown)
        unknown.clear()


def _split_readable(batch: RebuildBatch) -> Iterator[RebuildBatch]:
    """Yield the parts of a batch; all of it where the entries that part it cannot be read."""
    try:
        parts = list(batches.split_batch(batch))
    except READING_ERRORS:
        parts = [batch]
    yield from parts


def check_relations(project: UUID | None, tables: Sequence[str] = ()) -> Iterator[BatchResult]:
    """Check what rows refer to, one table at a time: a second look keeps writers out.

    Nothing restores what this names. But a row may be deleted, or moved back, because of what the
    check of its own table says, so after a restoration this is checked again.
    """
    for check in select_checks("relations", tables):
        yield from _check_batch("relations", RebuildBatch(project), [check])


LONG_INDEX: Final = (
    "its comparison with the words makes writers wait; --table investigation_effecttext compares it"
)
MADE_UP: Final = "of a sample project: its rows have made-up times, its journal the real ones"


def _load_samples() -> set[UUID]:
    """Return the sample projects whose creation is in the journal. Others excuse nothing."""
    created = Entry.objects.filter(
        IS_OF_A_RARE_KIND,
        kind="admin.project_created",
        lane="system",
        project__gte=UUID(int=SAMPLE_IDS.start),
        project__lt=UUID(int=SAMPLE_IDS.stop),
        subject=F("project"),
    )
    rows = created.values_list("project", "position", "facts")
    return {project for project, position, facts in rows if _creates_sample(position, facts)}


def _creates_sample(position: int, facts: str) -> bool:
    try:
        return "sample" in read_entry_facts(position, facts)
    except UnreadableEntry:
        return False


def _count_made_up(unit: Unit, batch: RebuildBatch, checks: Sequence[RowCheck]) -> BatchResult:
    """Count the rows of a sample, which the journal does not give.

    Rows that are of another project too are named by the checks of what rows refer to.
    """
    counts = Counter[tuple[str, str, str]]()
    for check in checks:
        rows = check.select(batch).count() if check.count is None else check.count(batch)
        counts[check.table, "*", MADE_UP] = rows
    return BatchResult(unit, batch, Counter(), (), +counts)


def compare_imported_batch(batch: RebuildBatch, tables: Sequence[str]) -> BatchResult:
    """Compare the rows of imported sessions with the digests of their imports' entries."""
    comparison = imported_comparison.compare_imported_rows(batch, tables)
    if comparison.differences:
        with read_one_snapshot():
            comparison = imported_comparison.compare_imported_rows(batch, tables)
    return BatchResult(
        "session",
        batch,
        comparison.rows,
        tuple(comparison.differences),
        comparison.unknown,
    )


def _check_batch(
    unit: Unit, batch: RebuildBatch, checks: Sequence[RowCheck]
) -> Iterator[BatchResult]:
    try:
        comparisons = {part.check.table: part for part in compare_batch(batch, checks)}
        again = [part.check for part in comparisons.values() if part.differences]
        if again:
            with read_one_snapshot():
                parts = compare_batch(batch.copy_unread(), again)
            comparisons.update({part.check.table: part for part in parts})
        yield _summarize(unit, batch, list(comparisons.values()))
    except READING_ERRORS:
        if len(batch.sessions) > 1:
            for session in batch.sessions:
                yield from _check_batch(unit, RebuildBatch(batch.project, (session,)), checks)
            return
        yield _check_each(unit, batch, checks)


def _check_each(unit: Unit, batch: RebuildBatch, checks: Sequence[RowCheck]) -> BatchResult:
    """Check the tables of a batch one by one, because some entries cannot be read."""
    readable = {check.table: compare_readable(check, batch) for check in checks}
    comparisons = [part.comparison for part in readable.values() if part.comparison is not None]
    result = _summarize(unit, batch, comparisons)
    session = batch.sessions[0] if batch.sessions else None
    words = {at: why for part in readable.values() for at, why in part.left_out.items()}
    unreadable = [
        RowDifference(
            *("unreadable", "journal_entry", batch.project, session),
            *({"position": position}, position, "facts", why),
        )
        for position, why in sorted(words.items())
    ]
    key = {"session": session} if session else {"project": batch.project}
    unreadable += [
        RowDifference("unreadable", table, batch.project, session, key, 0, "*", ODD_ROW)
        for table, part in readable.items()
        if part.comparison is None
    ]
    return replace(result, differences=(*result.differences, *unreadable))


ODD_ROW: Final = "a row, or an entry about it, has a value of a form that Gatebook does not write"


def select_checks(unit: Unit, tables: Sequence[str]) -> list[RowCheck]:
    """Return the checks of a unit, limited to `tables` unless that is empty."""
    return [check for check in list_row_checks(unit) if not tables or check.table in tables]


def _select_part(batch: RebuildBatch, checks: Sequence[RowCheck]) -> list[RowCheck]:
    """Return the checks of a batch: of a part those of its effects, or the others."""
    if batch.effects is None and not batch.is_rest:
        return list(checks)
    return [check for check in checks if check.per_effect != batch.is_rest]


def _summarize(
    unit: Unit, batch: RebuildBatch, comparisons: Sequence[TableComparison]
) -> BatchResult:
    return BatchResult(
        unit,
        batch,
        Counter({comparison.check.table: comparison.rows for comparison in comparisons}),
        tuple(item for comparison in comparisons for item in comparison.differences),
        Counter(
            {
                (comparison.check.table, column, reason): count
                for comparison in comparisons
                for (column, reason), count in comparison.unknown.items()
            }
        ),
    )


def restore_rows(differing: DifferingBatches, tables: Sequence[str] = ()) -> Counter[str]:
    """Restore every row that differs, in one transaction; return how many by table.

    The entry `integrity.rebuilt` is written first. The rows are then compared again: if one still
    differs, everything is rolled back. Raises RebuildRefused.
    """
    written: Counter[str] = Counter()
    names = sorted(
        {check.table for check in list_row_checks() if not tables or check.table in tables}
    )
    try:
        with transaction.atomic():
            _lock_tables(names)
            with triggers.suspend_triggers(connection, names):
                for unit, batch in differing.list_parts():
                    checks = _select_part(batch, select_checks(unit, tables))
                    written += _restore_batch(batch, checks)
            if written[EffectText._meta.db_table]:  # its triggers were suspended
                store.rebuild_index()
    except IntegrityError as error:
        raise RebuildRefused(
            f"The database rejected the restored rows: {_first_line(error)}. Nothing was changed."
            " Another row refers to one that the journal does not know, or repeats a unique value."
        ) from error
    return written


def _can_compare(batch: RebuildBatch, check: RowCheck) -> bool:
    try:
        compare_batch(batch.copy_unread(), [check])
    except READING_ERRORS:
        return False
    return True


def _restore_batch(batch: RebuildBatch, checks: Sequence[RowCheck]) -> Counter[str]:
    """Restore the rows of a batch; return how many by table."""
    try:
        comparisons = compare_batch(batch.copy_unread(), checks)
    except READING_ERRORS:  # some tables of it were named, and are left as they are
        checks = [check for check in checks if _can_compare(batch, check)]
        comparisons = compare_batch(batch.copy_unread(), checks)
    if not any(comparison.changes for comparison in comparisons):
        return Counter()
    _record_rebuilt(batch, comparisons)
    written = _write_changes(comparisons)
    _require_equal_rows(batch, checks)
    return written


def _lock_tables(tables: Sequence[str]) -> None:
    """Keep other writers out until the end of the transaction; SQLite has one writer."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            names = ", ".join(["journal_entry", *tables])
            cursor.execute(f"LOCK TABLE {names} IN SHARE ROW EXCLUSIVE MODE")


def _write_changes(comparisons: Sequence[TableComparison]) -> Counter[str]:
    """Delete rows that the journal does not know, then restore the others, parents first."""
    written: Counter[str] = Counter()
    for comparison in reversed(comparisons):
        deleted = [change for change in comparison.changes if change.values is None]
        if deleted:
            comparison.check.restore(deleted)
            written[comparison.check.table] += len(deleted)
    for comparison in comparisons:
        restored = [change for change in comparison.changes if change.values is not None]
        if restored:
            comparison.check.restore(restored)
            written[comparison.check.table] += len(restored)
    return written


def _require_equal_rows(batch: RebuildBatch, checks: Sequence[RowCheck]) -> None:
    for comparison in compare_batch(batch.copy_unread(), checks):
        for row in comparison.differences:
            if row.kind in NOT_RESTORED:
                continue
            raise RebuildRefused(
                f"{row.table} {dict(row.key)} still differs in"
                f" {row.column or 'its existence'} after it was restored. Nothing was changed."
            )


def _record_rebuilt(batch: RebuildBatch, comparisons: Sequence[TableComparison]) -> None:
    """Append the entry that says what changes, and why."""
    counts: dict[str, Counter[str]] = {}
    for comparison in comparisons:
        for difference in comparison.differences:
            counts.setdefault(difference.table, Counter())[difference.kind] += 1
    differences = [item for comparison in comparisons for item in comparison.differences]
    facts = {"why": "differs_from_journal", "tables": counts}
    rows = [difference_to_json(item) for item in differences[:MAX_NAMED_ROWS]]
    body = {"kind": REBUILT, **facts, "rows": rows, "further_rows": len(differences) - len(rows)}
    entries.record_system_entry(
        batch.project or projects.load_oldest_project(),
        REBUILT,
        event_id=new_uuid7().hex,
        text=entries.dump_sorted_json(body),
        received_us=now_us(),
        facts=entries.dump_sorted_json(facts),
        session=batch.sessions[0] if batch.sessions else None,
    )


def difference_to_json(difference: RowDifference, *, with_texts: bool = False) -> dict[str, Any]:
    """Return a difference as JSON.

    What is kept (entries, the file of an interrupted run) leaves texts out: no erasure would find
    them there.
    """
    show = _to_shown if with_texts else _to_plain
    described: dict[str, Any] = {
        "table": difference.table,
        "difference": difference.kind,
        "project": difference.project,
        "session": difference.session,
        "key": {name: show(value) for name, value in difference.key.items()},
        "position": difference.position or None,
    }
    if difference.column:
        described |= {
            "column": difference.column,
            "stored": show(difference.stored),
            "expected": show(difference.expected),
        }
    return described


_SHOWN: Final = 200  # characters of a value on a terminal


def _to_shown(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_WORD: Final = 64  # characters of a value that is no text


def _to_plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, str) and len(value) <= _WORD and value.replace("_", "a").isalnum():
        return value
    return "(text)" if isinstance(value, str) and value else value if value == "" else "(value)"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
