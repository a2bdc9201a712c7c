"""Dispatch: use the permission and open the next attempt, in one transaction."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from accounts.origin import Origin, RepeatedKey
from db.clock import now_us
from journal import entries
from journal.entries import AppendStatus
from ledger import commands, permissions
from ledger.commands import CommandResult, DispatchCheck
from ledger.fold import apply, compensation
from ledger.fold.apply import Observe
from ledger.permissions import Grant, Refusal
from ledger.store.rows import EffectRow
from ledger.verdicts import evaluate, table
from ledger.verdicts.evaluate import Evaluation
from sessions import speakers


def dispatch_effect(
    origin: Origin,
    effect: UUID,
    *,
    process: str,
    asked: Callable[[str], str],
    check: DispatchCheck,
    again: DispatchCheck,
    observe: Observe,
    replays: int | None = None,
) -> CommandResult:
    """Use the permission and open the next attempt, or repeat the answer.

    `asked` returns the intent digest of what is about to run, for the planned tool. `check` may
    refuse a dispatch, and `again` one under a permission that an earlier attempt used. `replays`
    names the attempt of unknown outcome that the next one replaces, if the verdict table allows it.
    Raises LookupError when the project has no such effect.
    """
    row, attempts = commands.lock_effect(origin, effect)
    speakers.require_writer(
        origin,
        row.session_id,
        "effect.dispatched",
        task=row.task_id,
        effect=row.id,
        also=commands.planning_agent(row),
    )
    # Read the clock after the lock: the caller that waited for the row acts second.
    origin.received_us = max(origin.received_us, now_us())
    if row.intent_digest != asked(row.tool):
        commands.record_refusal(origin, row, "INTENT_MISMATCH")
        sentence = (
            "These arguments differ from the plan."
            " Plan them as a new effect and request permission."
        )
        return CommandResult(row, 409, Refusal("INTENT_MISMATCH", sentence, "digest_mismatch"))
    refused = check(row)
    if refused is not None:
        return CommandResult(row, 409, refused)
    current = attempts.get(row.attempt_count)
    if current is not None and current.is_open:
        is_same_request = (current.dispatch_key, current.process, current.lease_epoch) == (
            origin.key,
            process,
            origin.lease_epoch,
        )
        if not is_same_request and replays is None:
            return CommandResult(row, 409, permissions.ALREADY_DISPATCHED)
        if is_same_request:
            draft = origin.draft(
                "effect.dispatched", session=row.session_id, effect=row.id, attempt=current.number
            )
            repeated = entries.compare_with_stored(draft, origin.received_us)
            if repeated is None:  # another agent may have chosen the same key
                return CommandResult(row, 409, permissions.ALREADY_DISPATCHED)
            if repeated.status is AppendStatus.CONFLICT:
                raise RepeatedKey
            return CommandResult(row, 200, attempt=current)
    following = FIRST_ATTEMPT
    if row.attempt_count or replays is not None:
        following = decide_next_attempt(row, process, replays, origin.received_us)
        refused = following.refusal
        if refused is None and following.again:
            refused = again(row)
            # The earlier permission no longer applies, so a new one must be requested.
            if refused is not None and refused.code == "GATE_GONE":
                commands.give_up_attempt(row, attempts, origin.received_us, observe)
                permissions.change_permission(row, Grant("none", "revoked"), origin.received_us)
        if refused is not None:
            return CommandResult(row, 409, refused)
    elif row.state != "planned":
        return CommandResult(row, 409, permissions.refuse_wrong_state(row))
    if row.permission != "granted" and not following.again:
        return CommandResult(row, 409, permissions.refuse_without_permission(row))
    if row.compensates_id is not None and compensation.has_open_compensation(row):
        return CommandResult(row, 409, permissions.COMPENSATION_OPEN)
    number = row.attempt_count + 1
    facts = permissions.facts_to_json(following.facts) if following.facts else "{}"
    draft = origin.draft(
        "effect.dispatched", facts=facts, session=row.session_id, effect=row.id, attempt=number
    )
    appended = entries.append_entries([draft], origin.received_us)[0]
    if appended.status is AppendStatus.DUPLICATE:
        # This key opened an attempt that is closed now.
        return CommandResult(row, 409, permissions.ALREADY_DISPATCHED)
    if appended.status is AppendStatus.CONFLICT:
        raise RepeatedKey
    fact = commands.make_fact(
        origin,
        "effect.dispatched",
        appended.position,
        number,
        {"process": process, **following.values},
    )
    commands.apply_fact(row, attempts, fact, observe)
    return CommandResult(
        row, 200, created=True, attempt=attempts[number], position=appended.position
    )


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
NEEDS_PERMISSION: Final = Refusal(
    "NO_PERMISSION",
    "Another attempt needs its own permission. Plan the effect again, then dispatch it.",
    "already_used",
)
_COMPENSATION_OPEN: Final = Refusal(
    "COMPENSATION_OPEN",
    "A compensation of this effect is open. Do not act; settle the compensation first.",
)
_LEASE_HELD: Final = Refusal(
    "LEASE_HELD", "Another worker holds the lease. Do not act while it is live."
)


def decide_next_attempt(
    row: EffectRow, process: str, replays: int | None, now_us: int
) -> NextAttempt:
    """Decide the next attempt of a locked effect; it replaces `replays`."""
    asker = process if replays is not None else None
    evaluation = evaluate.evaluate_effects(row.project_id, [row], now_us, asker)[row.id]
    decision = evaluation.verdict
    if decision.row == "11":  # the next step belongs to its compensation
        return NextAttempt(_COMPENSATION_OPEN)
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
        return NextAttempt(NEEDS_PERMISSION)
    number = row.attempt_count + 1
    key = (
        apply.make_remote_key(row.id, number)
        if decision.remote_key == "new"
        else evaluation.remote_key
    )
    values = {"replaces": replays, "verdict_row": decision.row, "remote_key": key}
    return NextAttempt(
        facts=evidence | {"replaces": replays}, values=values, again=row.permission == "used"
    )


def _refuse_unnamed(row: EffectRow) -> Refusal:
    """Return the refusal of a second attempt that does not name the one it replaces."""
    if row.state not in ("planned", "failed"):
        return (
            permissions.ALREADY_DISPATCHED
            if row.attempt_count
            else permissions.refuse_wrong_state(row)
        )
    return (
        permissions.refuse_without_permission(row)
        if row.permission != "granted"
        else permissions.ALREADY_DISPATCHED
    )


def _refuse_replay(row: EffectRow, evaluation: Evaluation) -> Refusal:
    reason = evaluation.verdict.reason
    if reason == "LEASE_HELD":
        return _LEASE_HELD
    if reason.startswith("GATE_"):
        return permissions.refuse_without_permission(row)
    return permissions.ALREADY_DISPATCHED
