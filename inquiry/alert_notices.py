"""Notifications of saved-query alerts, delivered at least once from the outbox.

Texts contain the saved query's own name and text, and handles; never text that agents sent.
"""

from typing import Any, Final

import orjson
import structlog

from approvals import delivery, notices
from approvals.delivery import Telling
from inquiry import addresses, alerts
from inquiry.models_alerts import Alert
from inquiry.things import ENTRY, LETTERS
from journal import outbox
from journal.models import Body, Entry, Outbox
from sessions.models import Project

log = structlog.get_logger("gatebook.notice")
ONES: Final = {
    "effect": "effect",
    "session": "session",
    "gate": "gate",
    "exemption": "exemption",
    "event": "entry",
}
MANY: Final = {**{entity: f"{entity}s" for entity in ONES}, "event": "entries"}


def register() -> None:
    """Register the outbox topic and the notification texts. Called once."""
    outbox.register("alert", tell)
    delivery.tellers.update({alerts.RAISED: _raised, alerts.STOPPED: _stopped})


def tell(row: Outbox) -> None:
    """Log the entry by ids only, and enqueue notifications for the current recipients."""
    entry = Entry.objects.get(position=row.entry_id)
    log.warning(
        entry.kind,
        project=str(row.project),
        entry=entry.position,
        subject=str(entry.subject),
        facts=entry.facts,
    )
    alert = Alert.objects.select_related("query").filter(query=entry.subject).first()
    if alert is not None:  # None: the alert was turned off since
        notices.tell_of(row, entry.kind, alerts.hearers(alert.query, alerts.chosen(alert)))


def handles(entity: str, positions: list[int]) -> list[str]:
    """Return handles such as e_41, s_12, g_7, x_9; #48211 for journal entries."""
    letter = "x_" if entity == "exemption" else LETTERS.get(entity, LETTERS[ENTRY])
    return [f"{letter}{position}" for position in positions]


def counted(facts: dict[str, Any]) -> str:
    """Return the number of matches in words: 1 new effect, 10,000+ new entries."""
    number, entity = facts["found"], facts["entity"]
    word = ONES[entity] if number == 1 and not facts["more"] else MANY[entity]
    return f"{number:,}{'+' if facts['more'] else ''} new {word}"


def _raised(entry: Entry) -> Telling | None:
    facts, words = orjson.loads(entry.facts), words_of(entry)
    first = handles(facts["entity"], facts["first"])
    rest = facts["found"] - len(first)
    lines = [f"{', '.join(first)}{f' and {rest:,} more' if rest or facts['more'] else ''}."]
    lines += [f"Query: {delivery.shown(words['q'])}"] if words else []
    return _telling(entry, f"{counted(facts)}: {_named(words)}", lines, words.get("pinned", ""))


def _stopped(entry: Entry) -> Telling | None:
    words = words_of(entry)
    lines = [delivery.shown(words["because"])] if words else []
    lines += [
        "Gatebook no longer checks this query. Its owner can turn alerts on again on its page."
    ]
    return _telling(entry, f"The alerts of {_named(words)} were stopped", lines, "")


def _telling(entry: Entry, headline: str, lines: list[str], pinned: str) -> Telling:
    path = f"/audit/saved/{entry.subject}/"
    if pinned:
        path = addresses.of_search(pinned, Project.objects.get(id=entry.project))
    return Telling(headline, lines, path, {"saved_query": str(entry.subject)})


def _named(words: dict[str, str]) -> str:
    return f"“{delivery.shown(words['name'])}”" if words else "a saved query"


def words_of(entry: Entry) -> dict[str, str]:
    """Return name and text of the query as stored in the entry; empty once erased."""
    text = Body.objects.filter(entry=entry.position).values_list("text", flat=True).first()
    return {} if text is None else orjson.loads(text)


__all__ = ["counted", "handles", "register", "tell", "words_of"]
