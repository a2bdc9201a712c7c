"""Notifications of saved-query alerts, delivered at least once from the outbox.

Texts contain the saved query's own name and text, and handles; never text that agents sent.
"""

from typing import Any, Final

import orjson

from accounts.models import Project
from display import urls_of_rows
from display.references import ENTRY, LETTERS
from investigation.alerts import alerts
from investigation.models import Alert
from journal.models import Body, Entry, Outbox
from notifications import message_text, notifications
from notifications.message_text import NotificationText

SINGULAR: Final = {
    "effect": "effect",
    "session": "session",
    "gate": "gate",
    "exemption": "exemption",
    "event": "entry",
}
PLURAL: Final = {**{entity: f"{entity}s" for entity in SINGULAR}, "event": "entries"}


def notify_alert(row: Outbox) -> None:
    """Log the entry by ids only, and enqueue notifications for the current recipients."""
    entry = Entry.objects.get(position=row.entry_id)
    notifications.log_for_operator(row, entry.kind, subject=str(entry.subject), facts=entry.facts)
    alert = Alert.objects.select_related("query").filter(query=entry.subject).first()
    if alert is not None:  # None: the alert was turned off since
        notifications.notify_channels(
            row, entry.kind, alerts.alert_recipients(alert.query, alerts.chosen_channels(alert))
        )


def format_handles(entity: str, positions: list[int]) -> list[str]:
    """Return handles such as e_41, s_12, g_7, x_9; #48211 for journal entries."""
    letter = "x_" if entity == "exemption" else LETTERS.get(entity, LETTERS[ENTRY])
    return [f"{letter}{position}" for position in positions]


def format_count(facts: dict[str, Any]) -> str:
    """Return the number of matches in words: 1 new effect, 10,000+ new entries."""
    number, entity = facts["found"], facts["entity"]
    word = SINGULAR[entity] if number == 1 and not facts["more"] else PLURAL[entity]
    return f"{number:,}{'+' if facts['more'] else ''} new {word}"


def build_new_matches_text(entry: Entry) -> NotificationText | None:
    """Return the text of an alert about new matches."""
    facts, words = orjson.loads(entry.facts), load_query_text(entry)
    first = format_handles(facts["entity"], facts["first"])
    rest = facts["found"] - len(first)
    lines = [f"{', '.join(first)}{f' and {rest:,} more' if rest or facts['more'] else ''}."]
    lines += [f"Query: {message_text.make_hidden_visible(words['q'])}"] if words else []
    return _build_text(
        entry, f"{format_count(facts)}: {_quoted_name(words)}", lines, words.get("pinned", "")
    )


def build_stopped_alerts_text(entry: Entry) -> NotificationText | None:
    """Return the text of alerts that were stopped."""
    words = load_query_text(entry)
    lines = [message_text.make_hidden_visible(words["because"])] if words else []
    lines += [
        "Gatebook no longer checks this query. Its owner can turn alerts on again on its page."
    ]
    return _build_text(entry, f"The alerts of {_quoted_name(words)} were stopped", lines, "")


def _build_text(entry: Entry, headline: str, lines: list[str], pinned: str) -> NotificationText:
    path = f"/search/saved/{entry.subject}/"
    if pinned:
        path = urls_of_rows.search_url_for_project(pinned, Project.objects.get(id=entry.project))
    return NotificationText(headline, lines, path, {"saved_query": str(entry.subject)})


def _quoted_name(words: dict[str, str]) -> str:
    return f"“{message_text.make_hidden_visible(words['name'])}”" if words else "a saved query"


def load_query_text(entry: Entry) -> dict[str, str]:
    """Return name and text of the query as stored in the entry; empty once erased."""
    text = Body.objects.filter(entry=entry.position).values_list("text", flat=True).first()
    return {} if text is None else orjson.loads(text)


__all__ = [
    "build_new_matches_text",
    "build_stopped_alerts_text",
    "format_count",
    "format_handles",
    "load_query_text",
    "notify_alert",
]
