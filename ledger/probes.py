"""Probes that agents report: an attempt was found once, several times or not at all."""

from typing import Any
from uuid import UUID

from journal import entries
from journal.entries import AppendStatus, Origin, RepeatedKey
from ledger import circuit_breakers, commands, refusals
from ledger.commands import CommandResult
from ledger.fold import effect_state
from ledger.store import writer
from sessions import writers


def probe_facts(
    attempt: int, result: str, received_us: int, began_us: int | None, *, live: bool
) -> dict[str, Any]:
    """Return a probe's journal facts; `began_us` is by the sender's clock.

    The stored `began_us` is the earlier of that time and the arrival, so that a clock that runs
    ahead never makes a probe later than it is. Without a start time it is the arrival of a `live`
    report, and missing for a late one.
    """
    since = min(began_us, received_us) if began_us is not None else received_us if live else None
    values = {"attempt": attempt, "result": result, "began_us": since}
    return {name: value for name, value in values.items() if value is not None}


def record_probe(
    origin: Origin,
    effect: UUID,
    *,
    attempt: int,
    result: str,
    external_reference: str,
    began_us: int | None,
) -> CommandResult:
    """Record a probe; a hit acknowledges the attempt as evidence.

    Raises LookupError when the project has no such effect, and RepeatedKey.
    """
    row, attempts = commands.lock_effect(origin, effect)
    stale = commands.find_lost_lease(origin, row, effect_state.PROBED, attempt)
    if attempt not in attempts:
        return CommandResult(row, 409, refusals.refuse_undispatched_probe(attempt))
    origin.lane = "evidence"
    facts = probe_facts(attempt, result, origin.received_us, began_us, live=True)
    draft = origin.draft(
        effect_state.PROBED,
        facts=entries.dump_sorted_json(facts),
        session=row.session_id,
        effect=row.id,
        attempt=attempt,
    )
    appended = entries.append_entries([draft], origin.received_us)[0]
    if appended.status is AppendStatus.CONFLICT:
        raise RepeatedKey
    if appended.status is AppendStatus.CREATED:
        values = {"result": result, "external_reference": external_reference}
        was_open = attempts[attempt].is_open
        writer.apply_fact(
            row,
            attempts,
            commands.make_fact(origin, effect_state.PROBED, appended.position, attempt, values),
        )
        # The attempt had no report, and yet its tool succeeded.
        if was_open and result == "hit":
            circuit_breakers.count_outcome(
                row, attempts[attempt], went_well=True, now_us=origin.received_us
            )
        if stale is not None:
            rejection = writers.build_fenced_entry(
                origin,
                row.session_id,
                stale,
                kept=True,
                effect=row.id,
                attempt=attempt,
                kind=effect_state.PROBED,
            )
            entries.append_entries([rejection], origin.received_us)
    return CommandResult(row, 200, attempt=attempts[attempt])
