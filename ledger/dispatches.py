"""Dispatch: use the permission and open the next attempt, in one transaction."""

from collections.abc import Callable
from uuid import UUID

from journal import entries
from journal.clock import now_us
from journal.entries import Status
from ledger import commands, leaves, undoing
from ledger import replays as table
from ledger.commands import Answered, Check
from ledger.fold import Observe
from ledger.leaves import Grant, Refusal
from sessions import speakers
from sessions.origin import Origin, Repeated


def dispatch(
    origin: Origin,
    effect: UUID,
    *,
    process: str,
    asked: Callable[[str], str],
    check: Check,
    again: Check,
    observe: Observe,
    replays: int | None = None,
) -> Answered:
    """Use the permission and open the next attempt, or repeat the answer.

    `asked` returns the intent digest of what is about to run, for the planned tool. `check` may
    refuse a dispatch, and `again` one under a permission that an earlier attempt used. `replays`
    names the attempt of unknown outcome that the next one replaces, if the verdict table allows it.
    Raises LookupError when the project has no such effect.
    """
    row, attempts = commands.locked(origin, effect)
    speakers.expect(
        origin,
        row.session_id,
        "effect.dispatched",
        task=row.task_id,
        effect=row.id,
        also=commands.planner(row),
    )
    # Read the clock after the lock: the caller that waited for the row acts second.
    origin.received_us = max(origin.received_us, now_us())
    if row.intent_digest != asked(row.tool):
        commands.trace(origin, row, "INTENT_MISMATCH")
        sentence = (
            "These arguments differ from the plan."
            " Plan them as a new effect and request permission."
        )
        return Answered(row, 409, Refusal("INTENT_MISMATCH", sentence, "digest_mismatch"))
    refused = check(row)
    if refused is not None:
        return Answered(row, 409, refused)
    current = attempts.get(row.attempt_count)
    if current is not None and current.is_open:
        is_same_request = (current.dispatch_key, current.process, current.lease_epoch) == (
            origin.key,
            process,
            origin.lease_epoch,
        )
        if not is_same_request and replays is None:
            return Answered(row, 409, leaves.ALREADY_DISPATCHED)
        if is_same_request:
            draft = origin.draft(
                "effect.dispatched", session=row.session_id, effect=row.id, attempt=current.number
            )
            repeated = entries.look(draft, origin.received_us)
            if repeated is None:  # another agent may have chosen the same key
                return Answered(row, 409, leaves.ALREADY_DISPATCHED)
            if repeated.status is Status.CONFLICT:
                raise Repeated
            return Answered(row, 200, attempt=current)
    following = table.FIRST
    if row.attempt_count or replays is not None:
        following = table.following(row, process, replays, origin.received_us)
        refused = following.refusal
        if refused is None and following.again:
            refused = again(row)
            # The earlier permission no longer applies, so a new one must be requested.
            if refused is not None and refused.code == "GATE_GONE":
                commands.give_up(row, attempts, origin.received_us, observe)
                leaves.change_leave(row, Grant("held", "revoked"), origin.received_us)
        if refused is not None:
            return Answered(row, 409, refused)
    elif row.state != "planned":
        return Answered(row, 409, leaves.wrong_state(row))
    if row.leave != "granted" and not following.again:
        return Answered(row, 409, leaves.none_given(row))
    if row.compensates_id is not None and undoing.another_is_open(row):
        return Answered(row, 409, leaves.COMPENSATION_OPEN)
    number = row.attempt_count + 1
    facts = leaves.as_text(following.facts) if following.facts else "{}"
    draft = origin.draft(
        "effect.dispatched", facts=facts, session=row.session_id, effect=row.id, attempt=number
    )
    appended = entries.append([draft], origin.received_us)[0]
    if appended.status is Status.DUPLICATE:
        # This key opened an attempt that is closed now.
        return Answered(row, 409, leaves.ALREADY_DISPATCHED)
    if appended.status is Status.CONFLICT:
        raise Repeated
    fact = commands.fact_of(
        origin,
        "effect.dispatched",
        appended.position,
        number,
        {"process": process, **following.values},
    )
    commands.post(row, attempts, fact, observe)
    return Answered(row, 200, created=True, attempt=attempts[number], position=appended.position)
