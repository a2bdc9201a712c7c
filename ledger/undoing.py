"""What compensations leave of the effects that they name: all of it undone, or its attempts up to one.

A compensation carries over what its marks say and not its state: it stays true that it was acknowledged when later it
is compensated itself. Of what it undoes in part it also counts whether that went well, and that may still change.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q

from journal.order import is_of_a_command
from ledger import declared, fold
from ledger.loaded import load
from ledger.models import Effect
from ledger.rows import AttemptRow, EffectRow
from ledger.tried import bearing, load_attempts

Rows = dict[UUID, EffectRow]
Attempts = dict[UUID, dict[int, AttemptRow]]


class Undoing(NamedTuple):
    """What a compensation does to `target` by the facts about it so far: to attempts up to `through`, or to all of it.

    `happened` counts for all of it. For a part it is `well` or `wrong`, and neither while nobody knows.
    """

    target: UUID
    through: int | None
    happened: bool = False
    well: bool = False
    wrong: bool = False

    @property
    def undone(self) -> int:
        """The attempts up to which it undid its target, where it undid a part."""
        return self.through or 0 if self.well else 0


def happened(row: EffectRow | Effect, tried: Iterable[AttemptRow]) -> bool:
    """True when a compensation was acknowledged, whatever came of it."""
    return row.resolution == "happened" or any(attempt.acknowledged_mark for attempt in tried)


def went_well(row: EffectRow | Effect, tried: Iterable[AttemptRow]) -> bool:
    """True when what undoes a part happened and went well: only then nothing is left of what it undoes.

    A command's word decides. Among reports one that says that it went wrong is enough for no, of whichever attempt:
    what is taken for undone is done again.
    """
    answered = [
        attempt for attempt in tried if attempt.acknowledged_mark and attempt.outcome != "unknown"
    ]
    commanded = [
        attempt.outcome for attempt in answered if is_of_a_command(attempt.acknowledged_mark)
    ]
    if is_of_a_command(row.superseded_mark):  # withdrawn
        return False
    if row.resolution == "happened" or "ok" in commanded:
        return True
    return bool(answered) and all(attempt.outcome == "ok" for attempt in answered)


def went_wrong(row: EffectRow | Effect, tried: Iterable[AttemptRow]) -> bool:
    """True when no later report can show that it went well: it was acknowledged as wrong, or withdrawn by a command."""
    tried = list(tried)
    is_answered = any(
        attempt.acknowledged_mark and attempt.outcome != "unknown" for attempt in tried
    )
    return (is_answered or is_of_a_command(row.superseded_mark)) and not went_well(row, tried)


def of(
    rows: Mapping[UUID, EffectRow], attempts: Mapping[UUID, Mapping[int, AttemptRow]]
) -> dict[UUID, Undoing]:
    """What those of `rows` that are compensations do, by their ids."""
    compensations = {}
    for row in rows.values():
        if row.compensates_id is None:
            continue
        tried, through = attempts.get(row.id, {}).values(), row.undoes
        if through is None:
            compensations[row.id] = Undoing(row.compensates_id, None, happened=happened(row, tried))
        elif through:
            well, wrong = went_well(row, tried), went_wrong(row, tried)
            compensations[row.id] = Undoing(row.compensates_id, through, well=well, wrong=wrong)
    return compensations


def settle(row: EffectRow, rows: Rows, attempts: Attempts) -> list[str]:
    """`fold.settle`, with the deadline that was declared for the effect's tool and with what may still be undone of it.

    `rows` and `attempts` are what was read so far; the effect's compensations are read where two attempts happened.
    """
    deadline_s = declared.tool(row.project_id, row.tool).deadline_s
    return fold.settle(
        row, attempts.setdefault(row.id, {}), deadline_s, lambda: _spared(row.id, rows, attempts)
    )


def _spared(target: UUID, rows: Rows, attempts: Attempts) -> int:
    """The attempts up to which an effect may still turn out to have been undone before it was done again."""
    compensations = of(rows, attempts) | _others(target, rows)
    return max(
        (
            compensation.through or 0
            for compensation in compensations.values()
            if compensation.target == target and not compensation.wrong
        ),
        default=0,
    )


def _others(target: UUID, rows: Rows) -> dict[UUID, Undoing]:
    """What stored compensations of a part of `target` do that are not among `rows`."""
    stored = Effect.objects.filter(compensates=target, undoes__gt=0).exclude(id__in=list(rows))
    tried = {stored_row.id: stored_row for stored_row in stored}
    attempts = load_attempts(tried)
    compensations = {}
    for identity, stored_row in tried.items():
        attempts_of_row = attempts.get(identity, {}).values()
        well, wrong = (
            went_well(stored_row, attempts_of_row),
            went_wrong(stored_row, attempts_of_row),
        )
        compensations[identity] = Undoing(target, stored_row.undoes, well=well, wrong=wrong)
    return compensations


def carry(
    rows: Rows, attempts: Attempts, before: Mapping[UUID, Undoing]
) -> list[tuple[EffectRow, str]]:
    """Carry what compensations among `rows` did over to what they name; return the violations that this shows there.

    `before` is what the stored ones among them did by the facts of then (`of`). What is named is stored since it was
    named, and joins `rows` where it changes.
    """
    now = of(rows, attempts)
    violations: list[tuple[EffectRow, str]] = []
    _carry_whole(rows, attempts, before, now)
    moved = {
        compensation.target
        for identity in before.keys() | now.keys()
        if _effect_of(before.get(identity)) != _effect_of(now.get(identity))
        for compensation in (before.get(identity), now.get(identity))
        if compensation is not None and compensation.through is not None
    }
    if not moved:
        return violations
    loaded = load(moved - rows.keys())
    tried = attempts | bearing(loaded, {})
    for identity in sorted(moved & (rows.keys() | loaded.keys())):
        row = rows[identity] if identity in rows else loaded[identity]
        was, row.undone = (
            row.undone,
            max(
                (
                    compensation.undone
                    for compensation in now.values()
                    if compensation.target == identity
                ),
                default=0,
            ),
        )
        if row.undone < was:  # what went well no more may have been undone by another as well
            row.undone = max(
                row.undone,
                *(compensation.undone for compensation in _others(identity, rows).values()),
                0,
            )
        names = settle(row, rows, tried)
        if row.undone != was or names:
            rows[identity], attempts[identity] = row, tried.get(identity, {})
        violations += [(row, name) for name in names]
    return violations


def _effect_of(compensation: Undoing | None) -> tuple[UUID, int, bool] | None:
    """What a compensation of a part changes of what it names, None where nothing."""
    if (
        compensation is None
        or not compensation.through
        or not (compensation.well or compensation.wrong)
    ):
        return None
    return compensation.target, compensation.undone, compensation.wrong


def _carry_whole(
    rows: Rows, attempts: Attempts, before: Mapping[UUID, Undoing], now: Mapping[UUID, Undoing]
) -> None:
    """Where another plan has won and names another effect, the former is no longer compensated, unless by others."""
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
    absent = (targets | released) - rows.keys()
    if absent:
        loaded = load(absent)
        rows.update(loaded)
        attempts.update(bearing(loaded, {}))
    for identity in targets & rows.keys():
        row = rows[identity]
        if not row.compensated:
            row.compensated = True
            settle(row, rows, attempts)
    for identity in released & rows.keys() - targets:
        row = rows[identity]
        if row.compensated and not _compensated_by_others(identity, before):
            row.compensated = False
            settle(row, rows, attempts)


def _compensated_by_others(identity: UUID, excluded: Iterable[UUID]) -> bool:
    """True when an effect that is not among `known` compensates this one and happened."""
    others = Effect.objects.filter(compensates=identity).exclude(id__in=list(excluded))
    return others.filter(Q(resolution="happened") | Q(attempts__acknowledged_mark__gt="")).exists()


def another_is_open(row: EffectRow) -> bool:
    """True when another command's compensation of the same effect is planned or dispatched (the schema allows one)."""
    others = Effect.objects.filter(compensates=row.compensates_id, lane="command").exclude(
        id=row.id
    )
    return others.filter(state__in=("planned", "dispatched")).exists()
