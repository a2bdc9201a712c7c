"""Probes that agents report: an attempt is found once, often or not."""

from typing import Any, Final
from uuid import UUID

from journal import entries
from journal.entries import Status
from ledger import breakers, commands, fold, leaves
from ledger.commands import Answered
from ledger.fold import Observe
from ledger.leaves import Refusal
from sessions import fences
from sessions.origin import Origin, Repeated

FOUND: Final = ("hit", "miss", "error", "several")


def facts_of(
    attempt: int, found: str, received_us: int, began_us: int | None, *, live: bool
) -> dict[str, Any]:
    """Return a probe's journal facts; `began_us` is by the sender's clock.

    The stored `began_us` is the earlier of that time and the arrival, so that a clock that runs
    ahead never makes a probe later than it is. Without a start time it is the arrival of a `live`
    report, and missing for a late one.
    """
    since = min(began_us, received_us) if began_us is not None else received_us if live else None
    values = {"attempt": attempt, "found": found, "began_us": since}
    return {name: value for name, value in values.items() if value is not None}


def probe(
    origin: Origin,
    effect: UUID,
    *,
    attempt: int,
    found: str,
    external_reference: str,
    began_us: int | None,
    observe: Observe,
) -> Answered:
    """Record a probe; a hit acknowledges the attempt as evidence.

    Raises LookupError when the project has no such effect, and Repeated.
    """
    row, attempts = commands.locked(origin, effect)
    stale = commands.lost_lease(origin, row, fold.PROBED, attempt)
    if attempt not in attempts:
        sentence = f"Attempt {attempt} was never dispatched. There is nothing to probe."
        return Answered(row, 409, Refusal("NOT_DISPATCHED", sentence))
    origin.lane = "evidence"
    facts = facts_of(attempt, found, origin.received_us, began_us, live=True)
    draft = origin.draft(
        fold.PROBED,
        facts=leaves.as_text(facts),
        session=row.session_id,
        effect=row.id,
        attempt=attempt,
    )
    appended = entries.append([draft], origin.received_us)[0]
    if appended.status is Status.CONFLICT:
        raise Repeated
    if appended.status is Status.CREATED:
        values = {"found": found, "external_reference": external_reference}
        was_open = attempts[attempt].is_open
        commands.post(
            row,
            attempts,
            commands.fact_of(origin, fold.PROBED, appended.position, attempt, values),
            observe,
        )
        # The attempt had no report, and yet its tool succeeded.
        if was_open and found == "hit":
            breakers.count(row, attempts[attempt], went_well=True, now_us=origin.received_us)
        if stale is not None:
            rejection = fences.fenced(
                origin,
                row.session_id,
                stale,
                kept=True,
                effect=row.id,
                attempt=attempt,
                kind=fold.PROBED,
            )
            entries.append([rejection], origin.received_us)
    return Answered(row, 200, attempt=attempts[attempt])
