"""Notifications of raised and cleared episodes, delivered at least once from the outbox.

Recipients are the subscribed channels and the session's owner; operators read the log. One
notification per key of `episodes.build_notification_key`, and one recovery when nothing is raised
under the key.
"""

from typing import Any
from uuid import UUID

import orjson
from django.db.models import Q, QuerySet

from accounts.models import Agent
from display.effect_headline import Moment
from journal.models import Entry, Outbox
from monitoring.models import StuckEpisode
from monitoring.stuck.board import session_owner
from monitoring.stuck.episodes import PER_SUBJECT_RULES, build_notification_key, sentence_from_json
from monitoring.stuck.rule_names import RULES
from notifications import message_text, notifications
from notifications.message_text import NotificationText
from sessions.models import Session


def notify_episode(row: Outbox) -> None:
    """Log an episode in one line of ids only, and enqueue its notifications."""
    entry = Entry.objects.get(position=row.entry_id)
    notifications.log_for_operator(
        row,
        entry.kind,
        session=str(entry.session) if entry.session else None,
        subject=str(entry.subject),
        facts=entry.facts,
    )
    if entry.kind == "session.stuck":
        gate = entry.subject if _load_facts(entry)["rule"] == "S6" else None
        notifications.notify_stuck(row, _find_recipients(entry), gate)
    elif not _raised_episodes(entry).exists():
        notifications.notify_recovered(row, _notification_key(entry))


def _load_facts(entry: Entry) -> dict[str, Any]:
    facts: dict[str, Any] = orjson.loads(entry.facts)
    return facts


def _notification_key(entry: Entry) -> str:
    facts = _load_facts(entry)
    return build_notification_key(entry.session, _subject_of(entry), facts["rule"], facts["epoch"])


def _subject_of(entry: Entry) -> UUID:
    """Return the session, the effect, gate or handoff in it, or the agent (S10)."""
    return entry.subject or UUID(int=0)


def _raised_episodes(entry: Entry) -> QuerySet[StuckEpisode]:
    """Query the raised episodes under the notification key of an entry."""
    facts = _load_facts(entry)
    of = Q(session=entry.session)
    if entry.session is None or facts["rule"] in PER_SUBJECT_RULES:
        of &= Q(subject=entry.subject)
    return StuckEpisode.objects.filter(
        of,
        project=entry.project,
        rule=facts["rule"],
        epoch=facts["epoch"],
        raised_us__isnull=False,
        cleared_us__isnull=True,
    )


def _find_recipients(entry: Entry) -> set[int]:
    """Return the assigned people and the owner of the session, else of the agent."""
    owners: set[int | None] = set(
        _raised_episodes(entry).filter(owner__isnull=False).values_list("owner", flat=True)
    )
    if entry.session is None:
        owners |= set(Agent.objects.filter(id=_subject_of(entry)).values_list("owner", flat=True))
    else:
        owners.add(
            session_owner(
                Session.objects.select_related("owner", "agent__owner").get(id=entry.session)
            )[1]
        )
    return {owner for owner in owners if owner is not None}


def build_raised_text(entry: Entry) -> NotificationText | None:
    """Return the text of a raised episode; None if it is over."""
    episode = _raised_episodes(entry).order_by("-raised_us").first()
    if episode is None:
        return None
    facts = _load_facts(entry)
    rule = facts["rule"]
    why = "".join(
        message_text.format_moment_utc(part.us)
        if isinstance(part, Moment)
        else message_text.defang_text(part)
        for part in sentence_from_json(episode.says)
    )
    lines = [f"Rule {rule}, since {message_text.format_moment_utc(facts['since_us'])}."]
    lines += [f"Why: {why}."] if why else []
    return _build_text(entry, f"{_subject_name(entry)} is stuck: {RULES[rule]}", lines)


def build_cleared_text(entry: Entry) -> NotificationText:
    """Return the text of an episode that is over."""
    facts = _load_facts(entry)
    why = facts.get("why", "")
    because = (
        f" The session ended: {why.removeprefix('session_')}." if why.startswith("session_") else ""
    )
    lines = [
        f"Rule {facts['rule']}, {RULES[facts['rule']]}:"
        f" over since {message_text.format_moment_utc(entry.received_us)}.{because}",
        "If it returns before a worker takes over, you get no new notification;"
        " the Stuck page shows it.",
    ]
    return _build_text(
        entry, f"{_subject_name(entry)} is no longer stuck by rule {facts['rule']}", lines
    )


def _build_text(entry: Entry, headline: str, lines: list[str]) -> NotificationText:
    rule = _load_facts(entry)["rule"]
    session = str(entry.session) if entry.session else None
    paths: dict[str, str] = {
        "S4": f"/effects/{entry.subject}/",
        "S6": f"/approvals/{entry.subject}/",
    }
    path = paths.get(rule) or (f"/sessions/{session}/" if session else "/stuck/")
    return NotificationText(headline, lines, path, {"session": session, "rule": rule})


def _subject_name(entry: Entry) -> str:
    """Name the stuck session or agent as gate notifications do."""
    if entry.session is None:
        return f"Agent {message_text.defang_text(Agent.objects.get(id=_subject_of(entry)).name)}"
    session = Session.objects.select_related("agent").get(id=entry.session)
    return f"Session s_{session.opened_position} of {message_text.defang_text(session.agent.name)}"
