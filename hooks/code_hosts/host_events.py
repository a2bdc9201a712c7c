"""The one writer of CodeHostEvent: finds the effect behind each event, or that there is none.

An event is compared with effects when it arrives, and again at STAGES_S: reports arrive late. After
the grace time an event without an effect is settled. If its sender is an identity of an agent, it
is a finding: *acted outside Gatebook*. When its effect appears later, the finding says so.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final
from uuid import UUID

import orjson
import structlog
from django.db.models import Q

from approvals.gates import gates
from db import retry
from db.clock import now_us
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from db.text import to_column_text
from hooks.code_hosts import agent_identities, candidates, event_matches, matching
from hooks.code_hosts.event_facts import EventFacts
from hooks.code_hosts.matching import Compared, RuleMatch
from hooks.models import CodeHostDelivery, CodeHostEvent, EventMatch
from journal import entries, outbox
from journal.models import Outbox
from ledger.models import Effect
from ledger.store import writer
from ledger.violations import ACTED_OUTSIDE

log = structlog.get_logger("gatebook.code_hosts")

US: Final = 1_000_000
GRACE_S: Final = 600
# Seconds after the arrival at which an event without an effect is compared again.
STAGES_S: Final = (15, 60, 300, GRACE_S, 1_800, 7_200, 86_400)
OUTBOX_TOPIC: Final = "code_host.event"
SETTLED: Final = "code_host.settled"
MAX_RIVALS: Final = 50
MAX_EVENT_AGE_US: Final = 7 * 86_400 * US  # a payload's own time counts if it is not older
MIN_REASON: Final = 10
MAX_REASON: Final = 1_000


def find_sender_agent(project: UUID, host: str, facts: EventFacts) -> UUID | None:
    """Return the agent that the sender is an identity of, if it is exactly one."""
    agents = agent_identities.find_agents_of_sender(
        project, host, facts.sender, _digest_addresses(facts)
    )
    return next(iter(agents)) if len(agents) == 1 else None


def build_event_columns(facts: EventFacts, received_us: int) -> dict[str, Any]:
    """Return the columns that an event has from its payload. Also used by manage.py rebuild."""
    occurred = facts.occurred_us
    is_plausible = (
        occurred is not None and received_us - MAX_EVENT_AGE_US <= occurred <= received_us
    )
    return {
        "kind": facts.kind,
        "action": to_column_text(facts.action),
        "repository": facts.repository,
        "ref": to_column_text(facts.ref),
        "sha": facts.sha,
        "sender": to_column_text(facts.sender),
        "is_action": facts.is_action,
        "facts": entries.dump_sorted_json(
            {**facts.as_dict(), "addresses": _digest_addresses(facts)}
        ),
        "occurred_us": occurred if occurred is not None and is_plausible else received_us,
    }


def _digest_addresses(facts: EventFacts) -> list[str]:
    return [agent_identities.digest_address(address) for address in facts.emails]


def record_host_event(
    event: UUID, delivery: CodeHostDelivery, facts: EventFacts, agent: UUID | None
) -> CodeHostEvent:
    """Store the event of a delivery and queue its first comparison. Needs a transaction.

    The entry of the delivery has the ids of the event and of the sender's agent.
    """
    now = delivery.received_us
    stored = CodeHostEvent.objects.create(
        id=event,
        project_id=delivery.project_id,
        delivery=delivery,
        agent_id=agent,
        position=delivery.position,
        received_us=now,
        settle_by_us=now + GRACE_S * US,
        **build_event_columns(facts, now),
    )
    _queue_next_stage(stored, now)
    return stored


def compare_event(event: UUID) -> str:
    """Compare an event with effects, in its own transaction; return its status."""
    return retry.run_with_retry(
        lambda: _compare_locked(_lock_event(event)), writer.LostRace, gates.GateConflict
    )


def compare_queued_event(row: Outbox) -> None:
    """Compare the event that an outbox row names."""
    compare_event(UUID(row.deduplication_key.split(":")[1]))


def withdraw_event_match(match: UUID, project: UUID, *, actor: str, reason: str) -> None:
    """Record that a person says that an effect is not behind an event.

    The event is compared again, without that effect. Raises ChangeRefused.
    """
    reason = _check_reason(reason)

    def work() -> None:
        row, event = _lock_match(match, project)
        if row.status == "withdrawn":
            raise ChangeRefused("This match is already withdrawn. Reload the page.")
        event_matches.withdraw_match(row, actor=actor, reason=reason)
        _set_status(event, "open")
        _compare_locked(event)

    retry.run_with_retry(work, writer.LostRace, gates.GateConflict)


def choose_event_match(match: UUID, project: UUID, *, actor: str) -> None:
    """Record that a person says which of several effects is behind an event.

    Raises ChangeRefused.
    """

    def work() -> None:
        row, event = _lock_match(match, project)
        if row.status not in ("candidate", "withdrawn") or event.status == "matched":
            raise ChangeRefused("This event has an effect now. Reload the page.")
        compared = tuple(Compared(*pair) for pair in orjson.loads(row.compared))
        chosen = RuleMatch(
            row.effect_id, row.rule, compared, by_identity=False, dispatched=True, in_doubt=True
        )
        _apply_choice(event, chosen, actor)

    retry.run_with_retry(work, writer.LostRace, gates.GateConflict)


def restore_host_events(changes: Sequence[RowChange]) -> None:
    """Restore events to what the journal gives (manage.py rebuild)."""
    write_row_changes(CodeHostEvent, changes)


def _check_reason(reason: str) -> str:
    text = reason.strip().replace("\0", "")
    if not MIN_REASON <= len(text) <= MAX_REASON:
        raise ChangeRefused(
            f"Explain how you know, in {MIN_REASON} to {MAX_REASON} characters."
            " Others will rely on it."
        )
    return text


def _lock_event(event: UUID) -> CodeHostEvent:
    return (
        CodeHostEvent.objects.select_for_update(of=("self",))
        .select_related("delivery__source")
        .get(id=event)
    )


def _lock_match(match: UUID, project: UUID) -> tuple[EventMatch, CodeHostEvent]:
    row = EventMatch.objects.filter(id=match, project=project).first()
    if row is None:
        raise ChangeRefused("This match does not exist any more. Reload the page.")
    event = _lock_event(row.event_id)
    row = EventMatch.objects.get(id=match)
    row.event = event
    return row, event


def _compare_locked(event: CodeHostEvent) -> str:
    """Compare a locked event with effects, and store what follows."""
    if event.status == "matched":
        return event.status
    stored = orjson.loads(event.facts)
    facts = EventFacts.from_dict(stored)
    withdrawn = EventMatch.objects.filter(event=event, status="withdrawn")
    excluded = set(withdrawn.values_list("effect", flat=True))
    host = event.delivery.source.host
    agents = agent_identities.find_agents_of_sender(
        event.project_id, host, event.sender, stored.get("addresses", ())
    )
    decision = matching.decide_match(
        facts,
        event.occurred_us,
        candidates.load_effect_candidates(event, facts, excluded),
        sender_agents=agents,
        rivals_us=_load_rival_times(event, facts),
    )
    now = now_us()
    if decision.chosen is not None:
        _apply_choice(event, decision.chosen, entries.SYSTEM_SOURCE)
        return event.status
    if decision.candidates:
        event_matches.record_candidates(event, decision.candidates, "candidate")
        _set_status(event, "ambiguous")
    elif event.status != "ambiguous" or not _has_candidates(event):
        event_matches.record_candidates(event, decision.undispatched, "undispatched")
        if now >= event.settle_by_us and facts.is_action and agents:
            _record_finding(event, facts, host, agents, decision.undispatched)
        else:
            _set_status(event, "unmatched" if now >= event.settle_by_us else "open")
    if facts.is_action or now < event.settle_by_us:
        _queue_next_stage(event, now)
    return event.status


def _has_candidates(event: CodeHostEvent) -> bool:
    return EventMatch.objects.filter(event=event, status="candidate").exists()


def _load_rival_times(event: CodeHostEvent, facts: EventFacts) -> list[int]:
    """Return when like events happened that have no effect either."""
    if facts.kind != "push":
        return []
    others = CodeHostEvent.objects.filter(
        ~Q(ref=""),
        project=event.project_id,
        repository=event.repository,
        ref=event.ref,
        kind="push",
        sender=event.sender,
        received_us__gte=event.received_us - 2 * matching.WINDOW_BEFORE_US,
        received_us__lte=event.received_us + 2 * matching.WINDOW_BEFORE_US,
    )
    others = others.exclude(id=event.id).exclude(status="matched").exclude(sha=event.sha)
    return list(others.values_list("occurred_us", flat=True)[:MAX_RIVALS])


def _apply_choice(event: CodeHostEvent, chosen: RuleMatch, actor: str) -> None:
    event_matches.record_match(event, event.delivery.source.host, chosen, actor)
    event_matches.drop_candidates(event)
    if event.finding_position is not None and event.settled_us is None:
        event.settled_us = now_us()
        _record_settled(event, chosen.effect, event.settled_us)
    _set_status(event, "matched")


def _set_status(event: CodeHostEvent, status: str) -> None:
    # A finding stays one until its effect appears, also while several effects fit.
    if event.finding_position is not None and status in ("open", "unmatched"):
        status = "outside"
        event.settled_us = None
    event.status = status
    event.save(update_fields=["status", "settled_us"])


def _record_finding(
    event: CodeHostEvent,
    facts: EventFacts,
    host: str,
    agents: Collection[UUID],
    undispatched: tuple[RuleMatch, ...],
) -> None:
    """Record once that an identity of an agent acted without an effect, and notify."""
    if event.finding_position is not None:
        _set_status(event, "outside")
        return
    now = now_us()
    event_id = entries.keyed_digest("violation", str(event.id), ACTED_OUTSIDE)
    words: dict[str, Any] = {
        "violation": ACTED_OUTSIDE,
        "host": host,
        "agents": sorted(str(agent) for agent in agents),
        "delivery": str(event.delivery_id),
        "sender": facts.sender,
        "what": describe_event(facts),
        "repository": facts.repository,
        "ref": facts.ref,
        "planned": sorted(str(match.effect) for match in undispatched),
    }
    appended = entries.record_system_entry(
        event.project_id,
        "integrity.violation",
        event_id=event_id,
        text=entries.dump_sorted_json(words),
        received_us=now,
        facts=writer.violation_facts(ACTED_OUTSIDE),
        subject=event.id,
    )
    outbox.queue_delivery(
        event.project_id,
        entry=appended.position,
        topic="integrity",
        deduplication_key=event_id,
        due_at_us=now,
    )
    event.finding_position, event.status = appended.position, "outside"
    event.save(update_fields=["finding_position", "status"])


def _record_settled(event: CodeHostEvent, effect: UUID, now: int) -> None:
    row = Effect.objects.only("session_id").get(id=effect)
    facts = {"event": event.id, "finding": event.finding_position}
    entries.record_system_entry(
        event.project_id,
        SETTLED,
        event_id=entries.keyed_digest(SETTLED, str(event.id), str(now)),
        text=entries.dump_sorted_json({"kind": SETTLED, **facts}),
        received_us=now,
        facts=entries.dump_sorted_json(facts),
        session=row.session_id,
        effect=effect,
        subject=event.id,
    )


def describe_event(facts: EventFacts) -> str:
    """Return what happened, in a few words, without free text of the payload."""
    number = f" #{facts.number}" if facts.number else ""
    return {
        "push": f"{facts.action} a ref by a push",
        "pull_request": f"{facts.action} the pull request{number}",
        "comment": f"{facts.action} a comment{f' on{number}' if number else ''}",
        "deployment": "deployed" if facts.is_action else f"deployment {facts.action}",
        "run": "started a workflow" if facts.is_action else f"workflow run {facts.action}",
        "check": f"check {facts.action}",
    }[facts.kind]


def _queue_next_stage(event: CodeHostEvent, now: int) -> None:
    """Queue the next comparison of an event without an effect, if there is one."""
    for stage in STAGES_S:
        due = event.received_us + stage * US
        if due > now:
            outbox.queue_delivery(
                event.project_id,
                entry=event.position,
                topic=OUTBOX_TOPIC,
                deduplication_key=f"code_host:{event.id}:{stage}",
                due_at_us=due,
            )
            return
