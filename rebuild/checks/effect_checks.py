"""Checks of effects and their attempts."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from investigation.history.past_effects import ToolDeadlines
from ledger.models import Attempt, Effect
from ledger.store import writer
from ledger.store.effect_rows import AttemptRow, EffectRow, row_columns
from rebuild.effect_fold import FoldedEffect, StoredEffect, fold_effects, load_branch_history
from rebuild.project_names import load_project_names
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, register_row_check
from rebuild.session_journal import load_session_journals
from rebuild.unreadable_entries import read_counted_facts

_EFFECT_COLUMNS: Final = row_columns(EffectRow)
_ATTEMPT_COLUMNS: Final = row_columns(AttemptRow)
EFFECT_UNCOMPUTED: Final = {
    "version": "counts how often the row was written",
    "changed_us": "the clock of the last write, which another effect's fact may cause",
}
ATTEMPT_UNCOMPUTED: Final = {"id": "a number of the table, to which nothing refers"}


def load_folded_effects(batch: RebuildBatch) -> dict[UUID, list[FoldedEffect]]:
    """Return the effects of the batch by session, folded once for all its checks."""
    if "effects" not in batch.cache:
        batch.cache["effects"] = dict(_fold_batch(batch))
    effects: dict[UUID, list[FoldedEffect]] = batch.cache["effects"]
    return effects


def _fold_batch(batch: RebuildBatch) -> Iterator[tuple[UUID, list[FoldedEffect]]]:
    names = load_project_names(batch)
    if batch.project is None:
        return
    deadlines = ToolDeadlines(batch.project, 0, read_counted_facts)
    for session, journal in load_session_journals(batch).items():
        effects = Effect.objects.filter(session=session)
        if batch.effects is not None:
            effects = effects.filter(id__in=batch.effects)
        rows = effects.values_list(*StoredEffect._fields)
        stored = {row[0]: StoredEffect._make(row) for row in rows.iterator(2_000)}
        branches = load_branch_history(journal)
        yield session, fold_effects(journal, stored, names, deadlines, branches)


def _fold_effect_rows(batch: RebuildBatch) -> Iterator[FoldedRow]:
    for effects in load_folded_effects(batch).values():
        for folded in effects:
            values = {name: getattr(folded.row, name) for name in _EFFECT_COLUMNS}
            values["imported"] = False
            yield FoldedRow((folded.row.id,), values, folded.position, folded.unknown)


def _fold_attempt_rows(batch: RebuildBatch) -> Iterator[FoldedRow]:
    for effects in load_folded_effects(batch).values():
        for folded in effects:
            for number, attempt in folded.attempts.items():
                values = {name: getattr(attempt, name) for name in _ATTEMPT_COLUMNS}
                unknown = folded.unknown_of_attempts.get(number, {})
                yield FoldedRow((folded.row.id, number), values, folded.position, unknown)


def _select_effects(batch: RebuildBatch) -> "QuerySet[Any]":
    rows = Effect.objects.filter(session__in=batch.sessions)
    return rows if batch.effects is None else rows.filter(id__in=batch.effects)


def _select_attempts(batch: RebuildBatch) -> "QuerySet[Any]":
    if batch.effects is not None:
        return Attempt.objects.filter(effect__in=batch.effects)
    return Attempt.objects.filter(effect__session__in=batch.sessions)


def _complete_effect(row: FoldedRow) -> Mapping[str, Any]:
    return {"version": 1, "changed_us": row.values["changed_us"]}


def register_effect_checks() -> None:
    """Register the checks of effects and attempts."""
    register_row_check(
        Effect._meta.db_table,
        RowCheck(
            Effect,
            ("id",),
            "session",
            _fold_effect_rows,
            _select_effects,
            writer.restore_effects,
            EFFECT_UNCOMPUTED,
            _complete_effect,
            per_effect=True,
        ),
    )
    register_row_check(
        Attempt._meta.db_table,
        RowCheck(
            Attempt,
            ("effect_id", "number"),
            "session",
            _fold_attempt_rows,
            _select_attempts,
            writer.restore_attempts,
            ATTEMPT_UNCOMPUTED,
            per_effect=True,
        ),
    )
