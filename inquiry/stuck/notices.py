"""Notifications of raised and cleared episodes, delivered at least once from the outbox.

Recipients are the subscribed channels and the session's owner; operators read the log. One alert
per key of `transitions.alert_of`, and one recovery when nothing is raised under the key.
"""

from typing import Any
from uuid import UUID

import orjson
import structlog
from django.db.models import Q, QuerySet

from approvals import delivery, notices
from approvals.delivery import Telling
from inquiry.models import StuckTransition
from inquiry.stuck.board import answerable
from inquiry.stuck.rules import RULES
from inquiry.stuck.transitions import OF_ONE_THING, alert_of
from journal import outbox
from journal.models import Entry, Outbox
from sessions.models import Agent, Session

log = structlog.get_logger("gatebook.notice")


def register() -> None:
    """Register the outbox topic and the notification texts. Called once."""
    outbox.register("stuck", tell)
    delivery.tellers.update({"session.stuck": _raised, "session.recovered": _cleared})


def tell(row: Outbox) -> None:
    """Log an episode in one line of ids only, and enqueue its notifications."""
    entry = Entry.objects.get(position=row.entry_id)
    log.warning(
        entry.kind,
        project=str(row.project),
        entry=row.entry_id,
        session=str(entry.session) if entry.session else None,
        subject=str(entry.subject),
        facts=entry.facts,
        deduplication_key=row.deduplication_key,
    )
    if entry.kind == "session.stuck":
        gate = entry.subject if _facts(entry)["rule"] == "S6" else None
        notices.tell_stuck(row, _owners(entry), gate)
    elif not _standing(entry).exists():
        notices.tell_recovered(row, _alert(entry))


def _facts(entry: Entry) -> dict[str, Any]:
    facts: dict[str, Any] = orjson.loads(entry.facts)
    return facts


def _alert(entry: Entry) -> str:
    facts = _facts(entry)
    return alert_of(entry.session, _subject(entry), facts["rule"], facts["epoch"])


def _subject(entry: Entry) -> UUID:
    """Return the session, the effect, gate or handoff in it, or the agent (S10)."""
    return entry.subject or UUID(int=0)


def _standing(entry: Entry) -> QuerySet[StuckTransition]:
    """Query the raised episodes under the alert key of an entry."""
    facts = _facts(entry)
    of = Q(session=entry.session)
    if entry.session is None or facts["rule"] in OF_ONE_THING:
        of &= Q(subject=entry.subject)
    return StuckTransition.objects.filter(
        of,
        project=entry.project,
        rule=facts["rule"],
        epoch=facts["epoch"],
        raised_us__isnull=False,
        cleared_us__isnull=True,
    )


def _owners(entry: Entry) -> set[int]:
    """Return the assigned people and the owner of the session, else of the agent."""
    owners: set[int | None] = set(
        _standing(entry).filter(owner__isnull=False).values_list("owner", flat=True)
    )
    if entry.session is None:
        owners |= set(Agent.objects.filter(id=_subject(entry)).values_list("owner", flat=True))
    else:
        owners.add(
            answerable(
                Session.objects.select_related("owner", "agent__owner").get(id=entry.session)
            )[1]
        )
    return {owner for owner in owners if owner is not None}


def _raised(entry: Entry) -> Telling | None:
    if not _standing(entry).exists():
        return None
    facts = _facts(entry)
    rule = facts["rule"]
    lines = [
        f"Rule {rule}, since {delivery.moment(facts['since_us'])}."
        " The Stuck page shows the evidence."
    ]
    return _telling(entry, f"{_of(entry)} is stuck: {RULES[rule]}", lines)


def _cleared(entry: Entry) -> Telling:
    facts = _facts(entry)
    why = facts.get("why", "")
    because = (
        f" The session ended: {why.removeprefix('session_')}." if why.startswith("session_") else ""
    )
    lines = [
        f"Rule {facts['rule']}, {RULES[facts['rule']]}:"
        f" over since {delivery.moment(entry.received_us)}.{because}",
        "If it returns before a worker takes over, you get no new notification;"
        " the Stuck page shows it.",
    ]
    return _telling(entry, f"{_of(entry)} is no longer stuck by rule {facts['rule']}", lines)


def _telling(entry: Entry, headline: str, lines: list[str]) -> Telling:
    rule = _facts(entry)["rule"]
    session = str(entry.session) if entry.session else None
    paths: dict[str, str] = {
        "S4": f"/effects/{entry.subject}/",
        "S6": f"/approvals/{entry.subject}/",
    }
    path = paths.get(rule) or (f"/sessions/{session}/" if session else "/stuck/")
    return Telling(headline, lines, path, {"session": session, "rule": rule})


def _of(entry: Entry) -> str:
    """Name the stuck session or agent as gate notifications do."""
    if entry.session is None:
        return f"Agent {delivery.inert(Agent.objects.get(id=_subject(entry)).name)}"
    session = Session.objects.select_related("agent").get(id=entry.session)
    return f"Session s_{session.opened_position} of {delivery.inert(session.agent.name)}"
