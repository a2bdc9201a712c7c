"""Derive state, outcome, permission and violations from the marks.

Pure; ledger/fold/apply.py sets the marks.
"""

from collections.abc import Mapping

from journal.order_keys import (
    attempt_of_confirmation,
    attempt_of_resolution,
    is_command_mark,
    is_resolution_mark,
)
from ledger.states import OUTCOME_OF_REASON
from ledger.store.effect_rows import AttemptRow, EffectRow


def derive_state(
    effect: EffectRow,
    attempts: dict[int, AttemptRow],
    deadline_s: int,
    undoable_through: int = 0,
) -> list[str]:
    """Derive the state from the marks; return the violations that they show.

    `deadline_s` is the maximum duration of a dispatch of the effect's tool. `undoable_through` is
    the attempt up to which the effect may still turn out to have been undone; it matters only where
    `may_have_happened_twice`.
    """
    highest = max(attempts, default=0)
    resolved = attempt_of_resolution(effect.resolved_mark)
    confirmed = confirmed_attempt(effect)
    for number, row in attempts.items():
        is_unanswered = (
            bool(row.dispatched_mark) and not row.acknowledged_mark and not row.failed_mark
        )
        row.is_open = (
            is_unanswered and number == highest and number != resolved and number > effect.undone
        )
        row.replaced = is_unanswered and number < highest
        if row.failure_reason and not row.acknowledged_mark:
            row.outcome = OUTCOME_OF_REASON[row.failure_reason]
    acknowledged = [
        row for _, row in sorted(attempts.items()) if determines_state(row, effect.undone, highest)
    ]
    last = attempts.get(highest)
    answering = acknowledged[-1] if acknowledged else last
    effect.state = _state(effect, attempts, acknowledged, last)
    effect.outcome = answering.outcome if answering is not None else ""
    reason = (
        "rejected" if highest <= effect.undone else last.failure_reason if last is not None else ""
    )
    if effect.state == "failed":
        effect.outcome = OUTCOME_OF_REASON[reason]
    if effect.state == "acknowledged" and (effect.resolution == "happened" or confirmed):
        is_known = acknowledged and effect.outcome != "unknown"
        effect.outcome = effect.outcome if is_known else "ok"
    if effect.state in ("planned", "dispatched"):
        effect.outcome = ""
    effect.attempt_count = highest
    effect.failure_reason = reason if effect.state == "failed" else ""
    effect.external_reference = answering.external_reference if answering is not None else ""
    effect.dispatched_at_us = last.dispatched_at_us if last is not None else None
    effect.settled_at_us = None
    if answering is not None:
        effect.settled_at_us = (
            answering.acknowledged_at_us if acknowledged else answering.failed_at_us
        )
    effect.deadline_us = None
    if effect.state == "dispatched" and last is not None and last.received_us is not None:
        effect.deadline_us = last.received_us + deadline_s * 1_000_000
    violations = []
    # A violation is never withdrawn. So it is recorded only where no later fact can contradict it:
    # an attempt of unknown outcome may still turn out not to have happened, and one that is being
    # undone may have been undone before the next.
    known_attempts = [row.number for row in acknowledged if row.outcome != "unknown"]
    first = known_attempts[0] if known_attempts else 0
    later_attempts = [number for number in known_attempts if number > undoable_through]
    if len(later_attempts) > 1 or (
        effect.resolution == "happened"
        and first > resolved
        and not 0 < resolved <= undoable_through
    ):
        violations.append("acknowledged_twice")
    # "It did not happen" applies to the attempt and to those before it.
    if (
        0
        < first
        <= max(
            (number for number, row in attempts.items() if is_resolution_mark(row.failed_mark)),
            default=0,
        )
    ):
        violations.append("happened_after_all")
    resolved_attempt = attempts.get(resolved) if effect.resolution == "happened" else None
    if resolved_attempt is not None and resolved_attempt.failure_reason == "rejected":
        violations.append("rejected_after_all")
    if _is_withdrawn_wrongly(effect, attempts, known_attempts):
        violations.append("withdrawn_after_dispatch")
    if effect.resolution == "abandoned" and known_attempts:
        violations.append("happened_after_abandoned")
    if effect.permission == "bypassed":
        violations.append("executed_without_permission")
    effect.violates = effect.violates or bool(violations)
    return violations


def confirmed_attempt(effect: EffectRow) -> int:
    """Return the attempt that a code host confirmed; 0 if none, or if it was undone.

    The attempt stays open: events often arrive before the report of the worker, which counts.
    A confirmation can be withdrawn, so no violation is ever derived from it.
    """
    number = attempt_of_confirmation(effect.confirmed_mark) if effect.confirmed_by else 0
    return number if number > effect.undone else 0


def may_have_happened_twice(effect: EffectRow, attempts: Mapping[int, AttemptRow]) -> bool:
    """True if two attempts of known outcome count, unless one of them was undone."""
    if len(attempts) < 2 and effect.resolution != "happened":
        return False
    highest = max(attempts, default=0)
    known_attempts = [
        number
        for number, row in attempts.items()
        if row.outcome != "unknown" and determines_state(row, effect.undone, highest)
    ]
    if effect.resolution == "happened" and known_attempts:
        return len(known_attempts) > 1 or min(known_attempts) > attempt_of_resolution(
            effect.resolved_mark
        )
    return len(known_attempts) > 1


def is_retry_exhausted(effect: EffectRow) -> bool:
    """True if the one retry after a person's "it did not happen" was used."""
    return effect.resolution == "not_happened" and effect.attempt_count > attempt_of_resolution(
        effect.resolved_mark
    )


def determines_state(row: AttemptRow, undone: int, highest: int) -> bool:
    """True if the acknowledgement of an attempt determines the effect's state.

    An undone attempt does not. Nor does an unknown outcome, once another attempt was made or this
    one was reported as failed.
    """
    return bool(row.acknowledged_mark) and outcome_determines_state(
        row, row.outcome, undone, highest
    )


def outcome_determines_state(row: AttemptRow, outcome: str, undone: int, highest: int) -> bool:
    if row.number <= undone or outcome != "unknown":
        return row.number > undone
    return row.number == highest and not row.failed_mark


def _is_withdrawn(
    effect: EffectRow,
    attempts: dict[int, AttemptRow],
    acknowledged: list[AttemptRow],
    last: AttemptRow | None,
) -> bool:
    """True if a withdrawal counts: nothing of the effect may have happened.

    A withdrawal by command was accepted because nothing had happened: after it only the last
    attempt counts. A reported withdrawal is checked against every attempt.
    """
    if not effect.superseded_mark or acknowledged or effect.resolution == "happened":
        return False
    if confirmed_attempt(effect):
        return False
    if is_command_mark(effect.superseded_mark):
        return last is None or not _is_in_doubt(effect, last)
    return not any(_is_in_doubt(effect, row) for row in attempts.values())


def _is_in_doubt(effect: EffectRow, row: AttemptRow) -> bool:
    """True if an attempt may have happened: not rejected, undone or denied."""
    denied_through = (
        attempt_of_resolution(effect.resolved_mark) if effect.resolution == "not_happened" else 0
    )
    return row.number > max(effect.undone, denied_through) and row.failure_reason != "rejected"


def _is_withdrawn_wrongly(
    effect: EffectRow, attempts: dict[int, AttemptRow], known_attempts: list[int]
) -> bool:
    """True for a reported withdrawal after dispatch, or any of what happened.

    Also if the attempt turns out to be rejected: the report came too early, or should have been a
    command, and no later fact withdraws a violation.
    """
    if not effect.superseded_mark:
        return False
    return bool(known_attempts or (attempts and not is_command_mark(effect.superseded_mark)))


def _state(
    effect: EffectRow,
    attempts: dict[int, AttemptRow],
    acknowledged: list[AttemptRow],
    last: AttemptRow | None,
) -> str:
    """Return the state; the first match counts (docs/explanation/order-of-facts.md)."""
    if effect.resolution == "abandoned" or _is_withdrawn(effect, attempts, acknowledged, last):
        return "superseded"
    if effect.compensated:
        return "compensated"
    if acknowledged or effect.resolution == "happened" or confirmed_attempt(effect):
        return "acknowledged"
    if last is not None:
        return "failed" if last.failed_mark or last.number <= effect.undone else "dispatched"
    return "planned"
