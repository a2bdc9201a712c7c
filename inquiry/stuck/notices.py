"""Lets people hear of what was raised or cleared: the outbox hands it over at least once, each with its key.

Whoever chose to hear of it, and the owner of the session, by the channels of the room approvals; the operator in the
log. One alert under each key of transitions.alert_of; that it is over once nothing is raised under it any more.
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
    """Take what the outbox holds of the watch, and say how it is put into words. Called once."""
    outbox.register("stuck", tell)
    delivery.tellers.update({"session.stuck": _raised, "session.recovered": _cleared})


def tell(row: Outbox) -> None:
    """Say it where an operator looks, in one structured log line of ids only, and to those who are to hear of it."""
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
    """What it is about: the session, the thing in it, or of S10 the agent."""
    return entry.subject or UUID(int=0)


def _standing(entry: Entry) -> QuerySet[StuckTransition]:
    """What is raised under the alert of an entry as of now."""
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
    """Whoever looks after it by assignment, and whose session it is, else whose agent."""
    owners: set[int | None] = set(_standing(entry).filter(owner__isnull=False).values_list("owner", flat=True))
    if entry.session is None:
        owners |= set(Agent.objects.filter(id=_subject(entry)).values_list("owner", flat=True))
    else:
        owners.add(answerable(Session.objects.select_related("owner", "agent__owner").get(id=entry.session))[1])
    return {one for one in owners if one is not None}


def _raised(entry: Entry) -> Telling | None:
    if not _standing(entry).exists():
        return None
    facts = _facts(entry)
    rule = facts["rule"]
    told = [f"Rule {rule}, since {delivery.moment(facts['since_us'])}. The page Stuck shows its evidence."]
    return _telling(entry, f"{_of(entry)} is stuck: {RULES[rule]}", told)


def _cleared(entry: Entry) -> Telling:
    facts = _facts(entry)
    why = facts.get("why", "")
    because = f" The session ended: {why.removeprefix('session_')}." if why.startswith("session_") else ""
    told = [
        f"Rule {facts['rule']}, {RULES[facts['rule']]}: over since {delivery.moment(entry.received_us)}.{because}",
        "Should the same come back before its lease is taken over, the page Stuck says so and no notice does.",
    ]
    return _telling(entry, f"{_of(entry)} is not stuck any more by rule {facts['rule']}", told)


def _telling(entry: Entry, headline: str, told: list[str]) -> Telling:
    rule = _facts(entry)["rule"]
    session = str(entry.session) if entry.session else None
    paths: dict[str, str] = {"S4": f"/effects/{entry.subject}/", "S6": f"/approvals/{entry.subject}/"}
    path = paths.get(rule) or (f"/sessions/{session}/" if session else "/stuck/")
    return Telling(headline, told, path, {"session": session, "rule": rule})


def _of(entry: Entry) -> str:
    """What is stuck, by the names that notices of gates use too."""
    if entry.session is None:
        return f"Agent {delivery.inert(Agent.objects.get(id=_subject(entry)).name)}"
    session = Session.objects.select_related("agent").get(id=entry.session)
    return f"Session s_{session.opened_position} of {delivery.inert(session.agent.name)}"
