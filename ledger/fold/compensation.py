"""Apply compensations to their targets: to all of it, or to some attempts.

A compensation carries over its marks and not its state: it stays acknowledged when it is later
compensated itself. A partial compensation also counts whether it went well, which may still change.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q

from journal.order_keys import is_command_mark
from ledger.fold import effect_state
from ledger.fold.effect_state import may_have_happened_twice
from ledger.models import Effect
from ledger.store.effect_rows import AttemptRow, EffectRow
from ledger.store.reader import load_attempts, load_relevant_attempts, lock_effects
from ledger.tools import cache

EffectRows = dict[UUID, EffectRow]
AttemptsByEffect = dict[UUID, dict[int, AttemptRow]]


class CompensationEffect(NamedTuple):
    """The effect of a compensation on `target`, or its attempts up to `through`.

    `happened` applies to all of it. A partial one is `well` or `wrong`, or neither while unknown.
    """

    target: UUID
    through: int | None
    happened: bool = False
    well: bool = False
    wrong: bool = False

    @property
    def undone(self) -> int:
        """The attempt up to which a partial compensation undid its target."""
        return self.through or 0 if self.well else 0


def has_happened(row: EffectRow | Effect, tried: Iterable[AttemptRow]) -> bool:
    """True if a compensation was acknowledged, whatever its outcome."""
    return row.resolution == "happened" or any(attempt.acknowledged_mark for attempt in tried)


def has_succeeded(row: EffectRow | Effect, tried: Iterable[AttemptRow]) -> bool:
    """True if a partial compensation succeeded, so that nothing remains.

    An acknowledgement by command decides. Among reports a single "it went wrong" for any attempt
    means no: what counts as undone is done again.
    """
    answered = [
        attempt for attempt in tried if attempt.acknowledged_mark and attempt.outcome != "unknown"
    ]
    command_outcomes = [
        attempt.outcome for attempt in answered if is_command_mark(attempt.acknowledged_mark)
    ]
    if is_command_mark(row.superseded_mark):  # withdrawn
        return False
    if row.resolution == "happened" or "ok" in command_outcomes:
        return True
    return bool(answered) and all(attempt.outcome == "ok" for attempt in answered)


def has_failed(row: EffectRow | Effect, tried: Iterable[AttemptRow]) -> bool:
    """True if no later report can show success: it failed, or a command withdrew it."""
    tried = list(tried)
    is_answered = any(
        attempt.acknowledged_mark and attempt.outcome != "unknown" for attempt in tried
    )
    return (is_answered or is_command_mark(row.superseded_mark)) and not has_succeeded(row, tried)


def compensation_effects(
    rows: Mapping[UUID, EffectRow], attempts: Mapping[UUID, Mapping[int, AttemptRow]]
) -> dict[UUID, CompensationEffect]:
    """Return the effects of those of `rows` that are compensations, by their ids."""
    compensations = {}
    for row in rows.values():
        if row.compensates_id is None:
            continue
        tried, through = attempts.get(row.id, {}).values(), row.undoes
        if through is None:
            compensations[row.id] = CompensationEffect(
                row.compensates_id, None, happened=has_happened(row, tried)
            )
        elif through:
            succeeded, failed = has_succeeded(row, tried), has_failed(row, tried)
            compensations[row.id] = CompensationEffect(
                row.compensates_id, through, well=succeeded, wrong=failed
            )
    return compensations


def load_and_derive_state(
    row: EffectRow, rows: EffectRows, attempts: AttemptsByEffect
) -> list[str]:
    """Load deadline and possible compensations, derive the state; return violations.

    `rows` and `attempts` are what was loaded so far; the effect's compensations are loaded only
    where two attempts happened.
    """
    deadline_s = cache.load_tool(row.project_id, row.tool).deadline_s
    numbered = attempts.setdefault(row.id, {})
    is_doubtful = may_have_happened_twice(row, numbered)
    undoable_through = _undoable_through(row.id, rows, attempts) if is_doubtful else 0
    return effect_state.derive_state(row, numbered, deadline_s, undoable_through)


def _undoable_through(target: UUID, rows: EffectRows, attempts: AttemptsByEffect) -> int:
    """Return the attempt up to which the effect may still have been undone."""
    compensations = compensation_effects(rows, attempts) | _stored_compensations(target, rows)
    return max(
        (
            compensation.through or 0
            for compensation in compensations.values()
            if compensation.target == target and not compensation.wrong
        ),
        default=0,
    )


def _stored_compensations(target: UUID, rows: EffectRows) -> dict[UUID, CompensationEffect]:
    """Return the stored partial compensations of `target` that are not among `rows`."""
    stored = Effect.objects.filter(compensates=target, undoes__gt=0).exclude(id__in=list(rows))
    tried = {stored_row.id: stored_row for stored_row in stored}
    attempts = load_attempts(tried)
    compensations = {}
    for identity, stored_row in tried.items():
        attempts_of_row = attempts.get(identity, {}).values()
        succeeded, failed = (
            has_succeeded(stored_row, attempts_of_row),
            has_failed(stored_row, attempts_of_row),
        )
        compensations[identity] = CompensationEffect(
            target, stored_row.undoes, well=succeeded, wrong=failed
        )
    return compensations


def apply_compensations(
    rows: EffectRows, attempts: AttemptsByEffect, before: Mapping[UUID, CompensationEffect]
) -> list[tuple[EffectRow, str]]:
    """Apply compensations among `rows` to their targets; return violations.

    `before` is the earlier result of `compensation_effects` for the stored ones. A target has been
    stored since it was named, and joins `rows` where it changes.
    """
    now = compensation_effects(rows, attempts)
    violations: list[tuple[EffectRow, str]] = []
    _apply_full_compensations(rows, attempts, before, now)
    moved = {
        compensation.target
        for identity in before.keys() | now.keys()
        if _change_of(before.get(identity)) != _change_of(now.get(identity))
        for compensation in (before.get(identity), now.get(identity))
        if compensation is not None and compensation.through is not None
    }
    if not moved:
        return violations
    loaded = lock_effects(moved - rows.keys())
    tried = attempts | load_relevant_attempts(loaded, {})
    for identity in sorted(moved & (rows.keys() | loaded.keys())):
        row = rows[identity] if identity in rows else loaded[identity]
        previous = row.undone
        row.undone = max((c.undone for c in now.values() if c.target == identity), default=0)
        if row.undone < previous:  # another compensation may have undone it as well
            row.undone = max(
                row.undone,
                *(
                    compensation.undone
                    for compensation in _stored_compensations(identity, rows).values()
                ),
                0,
            )
        names = load_and_derive_state(row, rows, tried)
        if row.undone != previous or names:
            rows[identity], attempts[identity] = row, tried.get(identity, {})
        violations += [(row, name) for name in names]
    return violations


def _change_of(compensation: CompensationEffect | None) -> tuple[UUID, int, bool] | None:
    """Return what a partial compensation changes on its target; None for nothing."""
    if (
        compensation is None
        or not compensation.through
        or not (compensation.well or compensation.wrong)
    ):
        return None
    return compensation.target, compensation.undone, compensation.wrong


def _apply_full_compensations(
    rows: EffectRows,
    attempts: AttemptsByEffect,
    before: Mapping[UUID, CompensationEffect],
    now: Mapping[UUID, CompensationEffect],
) -> None:
    """Apply full compensations to their current targets, release former ones."""
    released = {
        compensation.target
        for identity, compensation in before.items()
        if rows[identity].compensates_id != compensation.target
    }
    targets = {
        compensation.target
        for compensation in now.values()
        if compensation.through is None and compensation.happened
    }
    not_loaded = (targets | released) - rows.keys()
    if not_loaded:
        loaded = lock_effects(not_loaded)
        rows.update(loaded)
        attempts.update(load_relevant_attempts(loaded, {}))
    for identity in targets & rows.keys():
        row = rows[identity]
        if not row.compensated:
            row.compensated = True
            load_and_derive_state(row, rows, attempts)
    for identity in released & rows.keys() - targets:
        row = rows[identity]
        if row.compensated and not _has_other_compensation(identity, before):
            row.compensated = False
            load_and_derive_state(row, rows, attempts)


def _has_other_compensation(identity: UUID, excluded: Iterable[UUID]) -> bool:
    """True if another compensation of this effect, outside `excluded`, happened."""
    others = Effect.objects.filter(compensates=identity).exclude(id__in=list(excluded))
    return others.filter(Q(resolution="happened") | Q(attempts__acknowledged_mark__gt="")).exists()
