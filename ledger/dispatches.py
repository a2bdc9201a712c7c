"""Dispatch: leave is used and the next attempt opened in one transaction: the first, or one in place of another."""

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
    """Use the leave and open the next attempt, in one transaction. Repeats the grant only to the very same asker.

    `asked` gives the intent digest of what is about to run, for the tool that was planned; `check` may refuse what
    still looks granted here, and `again` what would run under leave that an attempt before it used. `replays` names
    the attempt in doubt whose place the next one takes, as the verdict table allows. Raises LookupError when the
    project has no such effect.
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
    # whoever waited for the row acts after whoever had it
    origin.received_us = max(origin.received_us, now_us())
    if row.intent_digest != asked(row.tool):
        commands.trace(origin, row, "INTENT_MISMATCH")
        sentence = "These are not the arguments that were planned; plan them as a new effect and ask for leave."
        return Answered(row, 409, Refusal("INTENT_MISMATCH", sentence, "digest_mismatch"))
    refused = check(row)
    if refused is not None:
        return Answered(row, 409, refused)
    current = attempts.get(row.attempt_count)
    if current is not None and current.is_open:
        same_asker = (current.dispatch_key, current.process, current.lease_epoch) == (
            origin.key,
            process,
            origin.lease_epoch,
        )
        if not same_asker and replays is None:
            return Answered(row, 409, leaves.ALREADY_DISPATCHED)
        if same_asker:
            draft = origin.draft(
                "effect.dispatched", session=row.session_id, effect=row.id, attempt=current.number
            )
            repeated = entries.look(draft, origin.received_us)
            if repeated is None:  # another agent's key may read the same
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
            # what it had serves no more: it is asked for anew
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
        # this key opened an attempt that is closed by now
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
