"""The one writer of Decision: what an agent chose, and how that ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from django.db.models import QuerySet

from db.ids import derive_uuid
from db.row_changes import RowChange, write_row_changes
from journal import entries
from journal.entries import Origin
from journal.order_keys import is_earlier_mark
from journal.summaries import parse_body
from sessions.models import Decision, Session, select_body_text


@dataclass(slots=True)
class DecisionFact:
    """A fact about a decision, already in the journal.

    `status` is "open" for a recorded decision, else that of its conclusion.
    """

    session: UUID
    key: str
    origin: Origin
    position: int
    status: str = "open"
    effect: UUID | None = None


def import_decisions(rows: Sequence[Decision]) -> None:
    """Store decisions of a bundle as their source had them, in their archive."""
    Decision.objects.bulk_create(rows, batch_size=500)


def restore_decisions(changes: Sequence[RowChange]) -> None:
    """Restore decisions to what the journal gives (manage.py rebuild)."""
    write_row_changes(Decision, changes)


def derive_decision_id(session: UUID, key: str) -> UUID:
    """Derive the id of the decision that `key` names in a session, stored or not."""
    return derive_uuid(session, "decision", key)


def save_decision(origin: Origin, session: UUID, key: str, effect: UUID | None) -> Decision:
    """Record a decision by command, before the agent acts on it.

    The session's row must be locked. Raises RepeatedKey.
    """
    draft = origin.draft(
        "decision.recorded",
        session=session,
        effect=effect,
        subject=derive_decision_id(session, key),
    )
    return _append_and_apply(draft, DecisionFact(session, key, origin, 0, effect=effect))


def save_decision_outcome(origin: Origin, decision: Decision, status: str) -> Decision:
    """Record how a decision ended: done, failed or abandoned.

    The session's row must be locked. Raises RepeatedKey.
    """
    draft = origin.draft(
        "decision.concluded",
        facts=orjson.dumps({"status": status}).decode(),
        session=decision.session_id,
        effect=decision.effect,
        subject=decision.id,
    )
    return _append_and_apply(
        draft, DecisionFact(decision.session_id, decision.key, origin, 0, status)
    )


def _append_and_apply(draft: entries.Draft, fact: DecisionFact) -> Decision:
    fact.position = fact.origin.append_draft(draft)
    return apply_decision_facts([fact])[derive_decision_id(fact.session, fact.key)]


def apply_decision_facts(reports: Sequence[DecisionFact]) -> dict[UUID, Decision]:
    """Fold facts into their decisions; the first of each kind by order key counts.

    The session rows must be locked.
    """
    facts_by_id = {derive_decision_id(fact.session, fact.key): fact for fact in reports}
    rows = Decision.objects.in_bulk(list(facts_by_id))
    for fact in reports:
        identifier = derive_decision_id(fact.session, fact.key)
        rows[identifier] = fold_decision_fact(rows.get(identifier), fact)
    for _id, row in sorted(rows.items()):
        row.version += 1
        row.save()
    return rows


def fold_decision_fact(stored: Decision | None, fact: DecisionFact) -> Decision:
    """Fold one fact into a decision, which it may be the first to name. Pure."""
    row = _build_row(fact) if stored is None else stored
    mark = fact.origin.mark
    if fact.status == "open" and is_earlier_mark(mark, row.recorded_mark):
        row.recorded_mark, row.recorded_position, row.effect = mark, fact.position, fact.effect
    elif fact.status != "open" and is_earlier_mark(mark, row.concluded_mark):
        row.concluded_mark, row.concluded_position, row.status = (
            mark,
            fact.position,
            fact.status,
        )
        row.concluded_at_us = fact.origin.received_us
    return row


def _build_row(fact: DecisionFact) -> Decision:
    return Decision(
        id=derive_decision_id(fact.session, fact.key),
        project_id=fact.origin.project,
        session_id=fact.session,
        key=fact.key,
        opened_position=fact.position,
        created_at_us=fact.origin.received_us,
        version=0,
    )


def query_decisions(session: UUID | Session, *, open_only: bool = False) -> "QuerySet[Any]":
    """Query a session's decisions with their texts `recorded` and `concluded`."""
    rows = Decision.objects.filter(session=session)
    if open_only:
        rows = rows.filter(status="open")
    return rows.annotate(
        recorded=select_body_text("recorded_position"),
        concluded=select_body_text("concluded_position"),
    )


def load_open_decisions(session: UUID | Session, limit: int) -> list[Any]:
    """Return the newest `limit` open decisions with their texts. One query."""
    return list(query_decisions(session, open_only=True).order_by("-opened_position")[:limit])


def decision_to_json(row: Any) -> dict[str, Any]:
    """Convert a decision of `query_decisions` to JSON; erased fields are null."""
    recorded = parse_body(row.recorded) if row.recorded is not None else {}
    concluded = parse_body(row.concluded) if row.concluded is not None else {}
    texts = {
        name: recorded.get(name)
        for name in ("choice", "rationale", "planned_action", "alternatives")
    }
    return {
        **summarize_decision(row),
        "session": str(row.session_id),
        **texts,
        "effect": str(row.effect) if row.effect else None,
        "outcome": concluded.get("outcome"),
        "created_at_us": row.created_at_us,
        "concluded_at_us": row.concluded_at_us,
    }


def summarize_decision(row: Decision) -> dict[str, Any]:
    """Return the short form of a decision, which commands answer."""
    return {"id": str(row.id), "key": row.key, "status": row.status, "version": row.version}
