"""Compare the rows of imported sessions with the digests that the entries of their imports have."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from erasure.text_columns import ERASABLE, TEXT_TABLES
from investigation.bundles.imported_rows import FACT, IMPORTED_MODELS, ROWS, digest_imported_rows
from journal.entries import SYSTEM_SOURCE
from journal.models import Entry
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from rebuild.project_journal import EARLIER_VERSION
from rebuild.registry import RebuildBatch
from rebuild.row_comparison import RowDifference
from rebuild.unreadable_entries import UnreadableEntry, read_entry_facts

IMPORTED_TABLES: Final = tuple(model._meta.db_table for model in IMPORTED_MODELS)
ERASED_SINCE: Final = "an erasure after the import may have removed its words"


@dataclass(slots=True)
class ImportedComparison:
    """What the rows of imported sessions differ in. `unknown` is as of a batch."""

    rows: Counter[str] = field(default_factory=Counter)
    differences: list[RowDifference] = field(default_factory=list)
    unknown: Counter[tuple[str, str, str]] = field(default_factory=Counter)


def compare_imported_rows(batch: RebuildBatch, tables: Sequence[str]) -> ImportedComparison:
    """Compare every column of the batch's sessions, of all tables or of some."""
    comparison = ImportedComparison()
    if tables and not set(tables) & set(IMPORTED_TABLES):
        return comparison
    imports = _load_imports(batch, comparison)
    for session in batch.sessions:
        position, imported = imports.get(session, (0, None))
        if imported is None and position:
            comparison.unknown["agent_sessions_session", "*", EARLIER_VERSION] += 1
        elif imported is None:
            key = {"session": session}
            comparison.differences.append(
                RowDifference(
                    "imported", "agent_sessions_session", batch.project, session, key, 0, ROWS
                )
            )
        else:
            named = {name: imported.get(name, {}) for name in tables or IMPORTED_TABLES}
            _compare_session(comparison, batch, session, position, named)
    return comparison


def _load_imports(
    batch: RebuildBatch, comparison: ImportedComparison
) -> dict[UUID, tuple[int, dict[str, dict[str, str]] | None]]:
    """Return the entry of each import by session: its position, and its digests."""
    imports: dict[UUID, tuple[int, dict[str, dict[str, str]] | None]] = {}
    rows = Entry.objects.filter(
        IS_OF_A_RARE_KIND,
        project__in=[batch.project],
        kind="admin.bundle_imported",
        lane="system",
        source=SYSTEM_SOURCE,
        subject__in=batch.sessions,
    )
    columns = rows.order_by("position").values_list("position", "subject", "facts")
    for position, subject, text in columns:
        try:
            digests = read_entry_facts(position, text).get(FACT)
        except UnreadableEntry:  # named by short_entries.py
            continue
        parts = [] if digests is None else [digests, *getattr(digests, "values", list)()]
        if not all(isinstance(part, dict) for part in parts):
            comparison.differences.append(
                RowDifference(
                    *("unreadable", "journal_entry", batch.project, subject),
                    *({"position": position}, position, "facts", f"its {FACT} are no objects"),
                )
            )
            continue
        # One without digests is of an earlier version, and not after one with them.
        if subject is not None and (digests is not None or subject not in imports):
            imports[subject] = position, digests
    return imports


def _compare_session(
    comparison: ImportedComparison,
    batch: RebuildBatch,
    session: UUID,
    position: int,
    imported: dict[str, dict[str, str]],
) -> None:
    stored = digest_imported_rows(session)
    stored = {table: digests for table, digests in stored.items() if table in imported}
    erased = _was_erased_since(batch, position)
    for table, digests in stored.items():
        comparison.rows[table] += int(digests[ROWS])
        for column, digest in digests.items():
            if imported.get(table, {}).get(column) == digest:
                continue
            if column not in imported.get(table, {}):
                comparison.unknown[table, column, EARLIER_VERSION] += 1
            elif erased and column in _ERASABLE[table]:
                comparison.unknown[table, column, ERASED_SINCE] += 1
            else:
                key = {"session": session}
                comparison.differences.append(
                    RowDifference("imported", table, batch.project, session, key, position, column)
                )


def _was_erased_since(batch: RebuildBatch, position: int) -> bool:
    kinds = ("erasure.confirmed", "erasure.executed", "retention.expired")
    rows = Entry.objects.filter(
        IS_OF_A_RARE_KIND, project__in=[batch.project], kind__in=kinds, position__gt=position
    )
    return rows.exists()


def _list_erasable_columns() -> dict[str, frozenset[str]]:
    """Return the columns of each table from which an erasure may remove words."""
    columns = {model._meta.db_table: set[str]() for model in IMPORTED_MODELS}
    for table in TEXT_TABLES:
        if table.model._meta.db_table in columns:
            columns[table.model._meta.db_table] |= {
                name for name, treatment in table.columns.items() if treatment in ERASABLE
            }
    return {table: frozenset(names) for table, names in columns.items()}


_ERASABLE: Final = _list_erasable_columns()
