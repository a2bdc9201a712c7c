"""Dispatch: decide the next attempt of an effect, and record that it begins."""

from dataclasses import dataclass, field
from typing import Any, Final

from journal import entries
from journal.entries import AppendStatus, Origin, RepeatedKey
from ledger import commands, refusals
from ledger.commands import CommandResult
from ledger.fold import effect_state
from ledger.models import Effect
from ledger.refusals import Refusal
from ledger.store import writer
from ledger.store.effect_rows import AttemptRow, EffectRow
from ledger.verdicts import table
from ledger.verdicts.evaluate import Evaluation


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """How the next attempt may begin, or why it may not.

    `facts` are for its entry, `values` for the fold. `again`: it reuses a used permission.
    """

    refusal: Refusal | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    again: bool = False


FIRST_ATTEMPT: Final = NextAttempt()


def has_open_compensation(row: EffectRow) -> bool:
    """True if a command planned another compensation of the same effect that is still open."""
    others = Effect.objects.filter(compensates=row.compensates_id, lane="command").exclude(
        id=row.id
    )
    return others.filter(state__in=("planned", "dispatched")).exists()


def decide_next_attempt(
    row: EffectRow, replays: int | None, evaluation: Evaluation | None
) -> NextAttempt:
    """Decide the next attempt of a locked effect; it replaces `replays`. A pure function.

    `evaluation` is the verdict, which a first attempt does not need.
    """
    if evaluation is None:
        return (
            FIRST_ATTEMPT
            if row.state == "planned"
            else NextAttempt(refusals.refuse_wrong_state(row))
        )
    decision = evaluation.verdict
    if decision.row == "11":  # the next step belongs to its compensation
        return NextAttempt(refusals.COMPENSATION_FIRST)
    evidence = {
        "row": decision.row,
        "reason": decision.reason,
        "table": table.TABLE_VERSION,
        "inputs": evaluation.case.as_dict(),
    }
    if decision.answer == "execute" and replays in (None, row.attempt_count):
        return NextAttempt(facts=evidence)
    if replays is None:
        return NextAttempt(_refuse_unnamed(row))
    if replays != row.attempt_count or decision.answer != "replay":
        return NextAttempt(_refuse_replay(row, evaluation))
    if decision.needs_new_permission:
        return NextAttempt(refusals.OWN_PERMISSION_NEEDED)
    number = row.attempt_count + 1
    key = (
        effect_state.make_remote_key(row.id, number)
        if decision.remote_key == "new"
        else evaluation.remote_key
    )
    values = {"replaces": replays, "verdict_row": decision.row, "remote_key": key}
    return NextAttempt(
        facts=evidence | {"replaces": replays},
        values=values,
        again=is_permission_reused(row, replays, evaluation),
    )


def is_permission_reused(row: EffectRow, replays: int | None, evaluation: Evaluation) -> bool:
    """True if the verdict allows a replay under the permission that an attempt used."""
    decision = evaluation.verdict
    is_replay = decision.answer == "replay" and not decision.needs_new_permission
    return is_replay and replays == row.attempt_count and row.permission == "used"


def record_dispatch(
    origin: Origin,
    row: EffectRow,
    attempts: dict[int, AttemptRow],
    process: str,
    following: NextAttempt,
) -> CommandResult:
    """Record that the next attempt of a locked effect begins, which uses its permission."""
    number = row.attempt_count + 1
    facts = entries.dump_sorted_json(following.facts) if following.facts else "{}"
    draft = origin.draft(
        "effect.dispatched", facts=facts, session=row.session_id, effect=row.id, attempt=number
    )
    appended = entries.append_entries([draft], origin.received_us)[0]
    if appended.status is AppendStatus.DUPLICATE:
        # This key opened an attempt that is closed now.
        return CommandResult(row, 409, refusals.ALREADY_DISPATCHED)
    if appended.status is AppendStatus.CONFLICT:
        raise RepeatedKey
    values = {"process": process, **following.values}
    fact = commands.make_fact(origin, "effect.dispatched", appended.position, number, values)
    writer.apply_fact(row, attempts, fact)
    return CommandResult(
        row, 200, created=True, attempt=attempts[number], position=appended.position
    )


def repeat_dispatch(origin: Origin, row: EffectRow, attempt: AttemptRow) -> CommandResult:
    """Repeat the answer to the request that opened `attempt`."""
    draft = origin.draft(
        "effect.dispatched", session=row.session_id, effect=row.id, attempt=attempt.number
    )
    stored = entries.compare_with_stored(draft, origin.received_us)
    if stored is None:  # another agent may have chosen the same key
        return CommandResult(row, 409, refusals.ALREADY_DISPATCHED)
    if stored.status is AppendStatus.CONFLICT:
        raise RepeatedKey
    return CommandResult(row, 200, attempt=attempt)


def _refuse_unnamed(row: EffectRow) -> Refusal:
    """Return the refusal of a second attempt that does not name the one it replaces."""
    if row.state not in ("planned", "failed"):
        return (
            refusals.ALREADY_DISPATCHED if row.attempt_count else refusals.refuse_wrong_state(row)
        )
    return (
        refusals.refuse_without_permission(row)
        if row.permission != "granted"
        else refusals.ALREADY_DISPATCHED
    )


def _refuse_replay(row: EffectRow, evaluation: Evaluation) -> Refusal:
    reason = evaluation.verdict.reason
    if reason == "LEASE_HELD":
        return refusals.LEASE_HELD
    if reason.startswith("GATE_"):
        return refusals.refuse_without_permission(row)
    return refusals.ALREADY_DISPATCHED
