"""Confirmations: a code host's own event shows that an effect happened.

An agent's report is one side; a webhook of the code host is the other. A confirmation is an entry
`effect.confirmed`, which the fold applies: an effect of unknown outcome becomes acknowledged. It
overwrites nothing, and no violation follows from it, because a person can withdraw it
(`effect.unconfirmed`). Then the effect is again what its other facts say.
"""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from db.clock import now_us
from journal import entries
from journal.order_keys import make_confirmation_key
from ledger.fold import effect_state
from ledger.fold.effect_state import Fact
from ledger.models import Effect
from ledger.store import reader, writer
from ledger.store.effect_rows import EffectRow
from ledger.store.reader import load_attempts

CODE_HOST_LABELS: Final = {"github": "GitHub", "gitlab": "GitLab"}


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a code host's event shows: `host`, the rule that matched, and both sides.

    `event` is the id of the event, `position` that of its delivery in the journal. `compared` holds
    the values of both sides; it goes into the body only, because it contains agents' text.
    """

    host: str
    rule: str
    event: UUID
    position: int
    compared: dict[str, Any]


def is_contradicted(effect: Effect | EffectRow) -> bool:
    """True if what is on record says that the effect did not happen as the event shows.

    Such an event confirms nothing by itself: a person compares both.
    """
    if effect.state in ("superseded", "compensated") or effect.resolution == "not_happened":
        return effect.resolution != "happened" and effect.state != "compensated"
    rejected = effect.state == "failed" and effect.failure_reason == "rejected"
    return rejected or (effect.state == "acknowledged" and effect.outcome == "error")


class NotConfirmable(Exception):
    """An event matches the effect, but changes nothing: it is shown as evidence only."""


def record_confirmation(
    project: UUID, effect: UUID, confirmation: Confirmation, actor: str = entries.SYSTEM_SOURCE
) -> tuple[EffectRow, int]:
    """Record that a code host confirmed the effect's last attempt.

    `actor` is the pseudonym of the person who chose this effect, or Gatebook's own name.

    Returns the effect and the entry's position. Must run inside a transaction. Raises LookupError
    when the project has no such effect, and NotConfirmable when it was never dispatched, was
    imported, compensates another, or is contradicted. What a compensation undid is for people to
    say: other effects depend on it.
    """
    row = _lock_row(project, effect)
    if not row.attempt_count or row.compensates_id is not None or is_contradicted(row):
        raise NotConfirmable
    if Effect.objects.filter(id=effect, imported=True).exists():
        raise NotConfirmable
    facts = {
        "by": confirmation.host,
        "rule": confirmation.rule,
        "event": confirmation.event,
        "delivery": confirmation.position,
    }
    texts = {**facts, "compared": confirmation.compared}
    return row, _record(row, effect_state.CONFIRMED, facts, texts, actor)


def withdraw_confirmation(
    project: UUID,
    effect: UUID,
    *,
    event: UUID,
    remaining_host: str,
    actor: str,
    reason: str,
) -> int:
    """Record that a person withdrew a confirmation; return the entry's position.

    `remaining_host` is the host of another confirmation that still counts, or empty. Must run
    inside a transaction. Raises LookupError when the project has no such effect.
    """
    row = _lock_row(project, effect)
    facts = {"by": remaining_host, "event": event}
    return _record(row, effect_state.UNCONFIRMED, facts, {**facts, "reason": reason}, actor)


def _lock_row(project: UUID, effect: UUID) -> EffectRow:
    row = reader.lock_effects([effect]).get(effect)
    if row is None or row.project_id != project:
        raise LookupError(effect)
    return row


def _record(
    row: EffectRow, kind: str, facts: dict[str, Any], texts: dict[str, Any], actor: str
) -> int:
    """Append the entry and fold it into the locked effect."""
    now = now_us()
    attempts = load_attempts([row.id]).get(row.id, {})
    event_id = entries.keyed_digest(kind, str(row.id), str(facts["event"]), str(row.version))
    position = entries.record_system_entry(
        row.project_id,
        kind,
        event_id=event_id,
        text=entries.dump_sorted_json({"kind": kind, "effect": row.id, **texts}),
        received_us=now,
        actor=actor,
        facts=entries.dump_sorted_json(facts),
        session=row.session_id,
        effect=row.id,
        attempt=row.attempt_count,
        subject=facts["event"],
    ).position
    fact = make_confirmation_fact(
        row.id, kind, position=position, attempt=row.attempt_count, at_us=now, by=facts["by"]
    )
    writer.apply_fact(row, attempts, fact)
    return position


def make_confirmation_fact(
    effect: UUID, kind: str, *, position: int, attempt: int, at_us: int, by: str
) -> Fact:
    """Return a confirmation, or its withdrawal, as the fold takes it."""
    return Fact(
        kind=kind,
        mark=make_confirmation_key(attempt, position),
        lane="system",
        key=effect.hex,
        position=position,
        received_us=at_us,
        told_us=at_us,
        attempt=attempt,
        values={"by": by},
    )
