"""The check of erased bodies: who erased each, when and why, as its entry says.

There may be millions, so they are read in parts, and only rows that differ are selected and folded.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.expressions import RawSQL

from db import raw_sql
from journal import entries, erasures
from journal.imported_entries import is_imported_source
from journal.models import Erasure
from rebuild.checks.erasure_checks import fold_retention_sets
from rebuild.past_expiries import PastExpiries
from rebuild.project_journal import ERASED, ProjectEntry, iterate_project_entries, match_clock
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, register_row_check
from retention.models import RetentionSet
from retention.retention_sets import describe_class

_AT_ONCE: Final = 500
_KINDS: Final = ("erasure.executed", "retention.expired")
_COLUMNS: Final = tuple(field.attname for field in Erasure._meta.concrete_fields)


def _fold_differing(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield the rows that entries give, and that are missing, or stored otherwise."""
    yield from (row for row in _load_differing(batch).values() if row is not None)


def _load_differing(batch: RebuildBatch) -> dict[int, FoldedRow | None]:
    """Return the rows that differ by position of the erased entry; None: no entry gives it."""
    if "erased" not in batch.cache:
        batch.cache["erased"] = dict(_find_differing(batch))
    rows: dict[int, FoldedRow | None] = batch.cache["erased"]
    return rows


def _find_differing(batch: RebuildBatch) -> Iterator[tuple[int, FoldedRow | None]]:
    runs = list[tuple[int, int]]()
    recorded = _fold_recorded(batch, runs)
    expiries = PastExpiries(batch, {row.key[0]: row for row in fold_retention_sets(batch)})
    while part := list(islice(recorded, _AT_ONCE)):
        expiries.mark_unfounded(part)
        rows = Erasure.objects.filter(pk__in=[row.key[0] for row, _ in part]).values(*_COLUMNS)
        stored = {row["entry_id"]: row for row in rows}
        for row, entry in part:
            values = stored.get(row.key[0], {})
            row.values["erased_at_us"] = match_clock(values.get("erased_at_us"), entry)
            if row.values != values or row.unknown or row.faults:
                yield row.key[0], row
    runs.sort()
    rows = _select_erasures(batch).order_by("entry").values_list("entry", "entry__source", "actor")
    for position, source, actor in rows.iterator(2_000):
        after = bisect_right(runs, (position, _LAST))
        is_recorded = after > 0 and runs[after - 1][1] >= position
        # What another installation erased: the bundle's own entries say so, if at all.
        is_imported = is_imported_source(source) and actor == erasures.IMPORTED_ACTOR
        if not is_recorded and not is_imported:
            yield position, None


_LAST: Final = 2**63


def _fold_recorded(
    batch: RebuildBatch, runs: list[tuple[int, int]]
) -> Iterator[tuple[FoldedRow, ProjectEntry]]:
    """Yield every row that an entry gives, but its clock; add their positions to `runs`."""
    sets = {row.key[0]: row for row in fold_retention_sets(batch)}
    for entry in iterate_project_entries(batch, _KINDS):
        expired_by, unknown = None, dict[str, str]()
        if entry.kind == "retention.expired":
            expired_by = entry.position
            named = entries.read_positions(entry.facts["positions"])
            # An expiry names earlier bodies; a forged one could name more than there are.
            positions = [(max(a, 1), min(b, entry.position - 1)) for a, b in named]
            reason = _describe_expiry(entry, sets, unknown)
        elif "entry" in entry.facts:  # absent: of a whole request
            positions = [(entry.facts["entry"], entry.facts["entry"])]
            reason = entry.read("reason", unknown)
        else:
            continue
        runs += positions
        for position in chain.from_iterable(range(a, b + 1) for a, b in positions):
            values = {
                "entry_id": position,
                "project": entry.project,
                "reason": reason,
                "actor": entry.actor,
                "expired_by": expired_by,
            }
            yield FoldedRow((position,), values, entry.position, dict(unknown)), entry


def _describe_expiry(
    entry: ProjectEntry, sets: Mapping[UUID, FoldedRow], unknown: dict[str, str]
) -> str | None:
    """Return the reason that an expiry's rows have, by the retention set of its entry."""
    loaded = sets.get(UUID(entry.facts["set"]))
    if loaded is None or "rules" in loaded.unknown:
        unknown["reason"] = ERASED
        return None
    return describe_class(RetentionSet(rules=loaded.values["rules"]), entry.facts["class"])


def _select_erasures(batch: RebuildBatch) -> "QuerySet[Erasure]":
    return Erasure.objects.filter(entry__project__in=[batch.project])


def _select_differing(batch: RebuildBatch) -> "QuerySet[Any]":
    positions = raw_sql.to_array_parameter(_load_differing(batch))
    text = f"SELECT key FROM {raw_sql.wanted_table('bigint')}"
    return Erasure.objects.filter(pk__in=RawSQL(text, [positions]))  # noqa: S611


def register_erased_body_checks() -> None:
    """Register the check of erased bodies."""
    check = RowCheck(
        Erasure,
        ("entry_id",),
        "project",
        _fold_differing,
        _select_differing,
        erasures.restore_erasures,
        insert_values=lambda row: {"reason": row.values["reason"] or "unknown"},
        count=lambda batch: _select_erasures(batch).count(),
    )
    register_row_check(check.table, check)
