"""The one writer of EventMatch: which effect is behind an event, by which rule.

A match of an effect that may be so is a confirmation of the ledger (ledger/confirmations.py).
People question matches: a withdrawn one stays on record and takes its confirmation back.
"""

from collections.abc import Sequence
from typing import Any, Final

from approvals import gated_commands
from db.clock import now_us
from db.row_changes import RowChange, write_row_changes
from hooks.code_hosts.matching import RuleMatch
from hooks.models import CodeHostEvent, EventMatch
from journal import entries
from ledger import confirmations
from ledger.confirmations import Confirmation, NotConfirmable
from ledger.models import Effect

MATCHED: Final = "code_host.matched"
DISMISSED: Final = "code_host.dismissed"
ACTIVE_STATUSES: Final = ("confirmed", "evidence", "contradicts")


def record_match(
    event: CodeHostEvent, host: str, match: RuleMatch, actor: str = entries.SYSTEM_SOURCE
) -> EventMatch:
    """Record that an effect is behind an event, and confirm the effect if that can be.

    Must run inside a transaction that has locked the event.
    """
    compared = [list(pair) for pair in match.compared]
    try:
        row, position = confirmations.record_confirmation(
            event.project_id,
            match.effect,
            Confirmation(host, match.rule, event.id, event.position, {"values": compared}),
            actor,
        )
    except NotConfirmable:
        effect = Effect.objects.get(project=event.project_id, id=match.effect)
        status = "contradicts" if confirmations.is_contradicted(effect) else "evidence"
        position = _append_match_entry(event, effect, match.rule, status, actor)
    else:
        status = "confirmed"
        gated_commands.end_gates_of_moved_effects([row], now_us())
    stored = _store_match(event, match, status, position)
    if actor != entries.SYSTEM_SOURCE:
        stored.decided_by, stored.decided_us = actor, now_us()
        stored.save(update_fields=["decided_by", "decided_us"])
    return stored


def record_candidates(
    event: CodeHostEvent, matches: tuple[RuleMatch, ...], status: str
) -> list[EventMatch]:
    """Record effects that may be behind an event, or that planned it.

    Effects that are recorded already stay as they are; but one that only planned it becomes a
    candidate once it was dispatched.
    """
    matched = EventMatch.objects.filter(event=event)
    if status == "candidate":
        matched = matched.exclude(status="undispatched")
    recorded = set(matched.values_list("effect", flat=True))
    stored = []
    for match in matches:
        if match.effect in recorded:
            continue
        effect = Effect.objects.get(project=event.project_id, id=match.effect)
        position = _append_match_entry(event, effect, match.rule, status, entries.SYSTEM_SOURCE)
        stored.append(_store_match(event, match, status, position))
    return stored


def drop_candidates(event: CodeHostEvent) -> None:
    """Delete the candidates of an event whose effect is known now; their entries stay."""
    EventMatch.objects.filter(event=event, status__in=("candidate", "undispatched")).delete()


def withdraw_match(match: EventMatch, *, actor: str, reason: str) -> None:
    """Record that a person says that this effect is not behind the event.

    A confirmation is taken back, unless another event confirms the effect too. Must run inside a
    transaction that has locked the event.
    """
    if match.status == "confirmed":
        others = EventMatch.objects.filter(effect=match.effect_id, status="confirmed")
        other = (
            others.exclude(id=match.id)
            .select_related("event__delivery__source")
            .order_by("-position")
            .first()
        )
        position = confirmations.withdraw_confirmation(
            match.project_id,
            match.effect_id,
            event=match.event_id,
            remaining_host=other.event.delivery.source.host if other is not None else "",
            actor=actor,
            reason=reason,
        )
    else:
        effect = Effect.objects.get(project=match.project_id, id=match.effect_id)
        position = _append_match_entry(match.event, effect, match.rule, "withdrawn", actor, reason)
    match.status, match.position, match.reason = "withdrawn", position, reason
    match.decided_by, match.decided_us = actor, now_us()
    match.save(update_fields=["status", "position", "reason", "decided_by", "decided_us"])


def restore_event_matches(changes: Sequence[RowChange]) -> None:
    """Restore matches to what the journal gives (manage.py rebuild)."""
    write_row_changes(EventMatch, changes)


def _store_match(event: CodeHostEvent, match: RuleMatch, status: str, position: int) -> EventMatch:
    stored, _ = EventMatch.objects.update_or_create(
        event=event,
        effect_id=match.effect,
        defaults={
            "project_id": event.project_id,
            "rule": match.rule,
            "compared": entries.dump_sorted_json([list(pair) for pair in match.compared]),
            "status": status,
            "position": position,
            "made_us": now_us(),
        },
    )
    return stored


def _append_match_entry(
    event: CodeHostEvent, effect: Effect, rule: str, status: str, actor: str, reason: str = ""
) -> int:
    kind = DISMISSED if status == "withdrawn" else MATCHED
    facts: dict[str, Any] = {"event": event.id, "rule": rule, "status": status}
    now = now_us()
    return entries.record_system_entry(
        event.project_id,
        kind,
        event_id=entries.keyed_digest(kind, str(event.id), str(effect.id), str(now)),
        text=entries.dump_sorted_json({"kind": kind, **facts, "reason": reason}),
        received_us=now,
        actor=actor,
        facts=entries.dump_sorted_json(facts),
        session=effect.session_id,
        effect=effect.id,
        subject=event.id,
    ).position
