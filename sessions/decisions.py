"""The one writer of Decision: what an agent chose, and how that ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from django.db.models import QuerySet

from journal import entries
from journal.entries import Status
from journal.gists import parsed
from journal.ids import derived
from journal.order import earlier
from sessions.models import Session
from sessions.models_state import Decision, text_at
from sessions.origin import Origin, Repeated


@dataclass(slots=True)
class Report:
    """A fact about a decision, already in the journal.

    `status` is "open" for a recorded decision, else that of its conclusion.
    """

    session: UUID
    key: str
    origin: Origin
    position: int
    status: str = "open"
    effect: UUID | None = None


def bring(rows: Sequence[Decision]) -> None:
    """Store decisions from a bundle, as the source journal had them.

    Expects the archive of their session.
    """
    Decision.objects.bulk_create(rows, batch_size=500)


def identity(session: UUID, key: str) -> UUID:
    """Derive the id of the decision that `key` names in a session, stored or not."""
    return derived(session, "decision", key)


def record(origin: Origin, session: UUID, key: str, effect: UUID | None) -> Decision:
    """Record a decision by command, before the agent acts on it.

    The session's row must be locked. Raises Repeated.
    """
    draft = origin.draft(
        "decision.recorded", session=session, effect=effect, subject=identity(session, key)
    )
    return _append_and_apply(draft, Report(session, key, origin, 0, effect=effect))


def conclude(origin: Origin, decision: Decision, status: str) -> Decision:
    """Record how a decision ended: done, failed or abandoned.

    The session's row must be locked. Raises Repeated.
    """
    draft = origin.draft(
        "decision.concluded",
        facts=orjson.dumps({"status": status}).decode(),
        session=decision.session_id,
        effect=decision.effect,
        subject=decision.id,
    )
    return _append_and_apply(draft, Report(decision.session_id, decision.key, origin, 0, status))


def _append_and_apply(draft: entries.Draft, fact: Report) -> Decision:
    appended = entries.append([draft], fact.origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    fact.position = appended.position
    return apply([fact])[identity(fact.session, fact.key)]


def apply(reports: Sequence[Report]) -> dict[UUID, Decision]:
    """Fold facts into their decisions; the first of each kind by order key counts.

    The session rows must be locked.
    """
    facts_by_id = {identity(fact.session, fact.key): fact for fact in reports}
    rows = Decision.objects.in_bulk(list(facts_by_id))
    for fact in reports:
        identifier = identity(fact.session, fact.key)
        row = rows.get(identifier)
        if row is None:
            row = rows[identifier] = _build_row(fact)
        mark = fact.origin.mark
        if fact.status == "open" and earlier(mark, row.recorded_mark):
            row.recorded_mark, row.recorded_position, row.effect = mark, fact.position, fact.effect
        elif fact.status != "open" and earlier(mark, row.concluded_mark):
            row.concluded_mark, row.concluded_position, row.status = (
                mark,
                fact.position,
                fact.status,
            )
            row.concluded_at_us = fact.origin.received_us
    for _id, row in sorted(rows.items()):
        row.version += 1
        row.save()
    return rows


def _build_row(fact: Report) -> Decision:
    return Decision(
        id=identity(fact.session, fact.key),
        project_id=fact.origin.project,
        session_id=fact.session,
        key=fact.key,
        opened_position=fact.position,
        created_at_us=fact.origin.received_us,
        version=0,
    )


def of_session(session: UUID | Session, *, open_only: bool = False) -> "QuerySet[Any]":
    """Return a session's decisions with the texts of their entries.

    The texts are `recorded` and `concluded`.
    """
    rows = Decision.objects.filter(session=session)
    if open_only:
        rows = rows.filter(status="open")
    return rows.annotate(
        recorded=text_at("recorded_position"), concluded=text_at("concluded_position")
    )


def open_ones(session: UUID | Session, limit: int) -> list[Any]:
    """Return the newest `limit` open decisions with their texts. One query."""
    return list(of_session(session, open_only=True).order_by("-opened_position")[:limit])


def told(row: Any) -> dict[str, Any]:
    """Convert a decision to JSON.

    Needs the texts that `of_session` reads. Erased fields are null.
    """
    recorded = parsed(row.recorded) if row.recorded is not None else {}
    concluded = parsed(row.concluded) if row.concluded is not None else {}
    texts = {
        name: recorded.get(name)
        for name in ("choice", "rationale", "planned_action", "alternatives")
    }
    return {
        **brief(row),
        "session": str(row.session_id),
        **texts,
        "effect": str(row.effect) if row.effect else None,
        "outcome": concluded.get("outcome"),
        "created_at_us": row.created_at_us,
        "concluded_at_us": row.concluded_at_us,
    }


def brief(row: Decision) -> dict[str, Any]:
    """Return the short form of a decision, which commands answer."""
    return {"id": str(row.id), "key": row.key, "status": row.status, "version": row.version}
