"""Text of a violation notification: the violation, its effect and the link."""

from typing import Final

import orjson

from accounts.models import Agent
from journal.models import Body, Entry
from ledger import violations
from ledger.confirmations import CODE_HOST_LABELS
from ledger.models import Effect
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from notifications.message_text import (
    NotificationText,
    build_call_names,
    defang_text,
    tool_label,
)

SETTLED: Final = "code_host.settled"


def build_violation_notification(entry: Entry) -> NotificationText | None:
    """Build the notification of an `integrity.violation` from columns.

    None if a code host's event has its effect by now.
    """
    name = orjson.loads(entry.facts).get("violation", "")
    if entry.effect is None:
        return _build_outside_notification(entry)
    description = violations.VIOLATION_LABELS.get(name, name).rstrip(".")
    effects = Effect.objects.filter(project=entry.project).select_related(
        "agent", "repository", "session"
    )
    effect = effects.get(id=str(entry.effect))
    place = [
        effect.repository and effect.repository.name,
        effect.ref,
        effect.ref_class,
        effect.environment,
    ]
    tool = tool_label(effect.project_id, effect.tool) or "an effect without a plan"
    agent = defang_text(effect.agent.name)
    target = "".join(f", {defang_text(word)}" for word in place if word)
    facts = [
        f"{description}.",
        f"{agent} used {tool}{target}, in {effect.session}.",
        f"Entry {entry.position} of the journal.",
    ]
    path = f"/effects/{effect.id}/?fact={entry.position}#p{entry.position}"
    return NotificationText(
        f"{description}: {tool} by {agent} ({effect})", facts, path, {**build_call_names(effect)}
    )


def _build_outside_notification(entry: Entry) -> NotificationText | None:
    """Build the notification of an agent's identity that acted without an effect."""
    settled = Entry.objects.filter(
        IS_OF_A_RARE_KIND, project=entry.project, kind=SETTLED, subject=entry.subject
    )
    if settled.filter(lane="system").exists():
        return None
    body = Body.objects.filter(entry=entry).values_list("text", flat=True).first()
    words = orjson.loads(body) if body is not None else {}
    names = Agent.objects.filter(project=entry.project, id__in=words.get("agents", []))
    agents = " or ".join(defang_text(name) for name in names.values_list("name", flat=True)[:5])
    host = CODE_HOST_LABELS.get(words.get("host", ""), "The code host")
    sender = defang_text(words.get("sender", "")) or "An identity"
    target = [words[name] for name in ("repository", "ref") if words.get(name)]
    place = "".join(f", {defang_text(name)}" for name in target)
    what = words.get("what", "acted")
    facts = [
        "Acted outside Gatebook: no effect matches it.",
        f"{host} reports that {sender} {what}{place}.",
        f"{sender} is listed as an identity of {agents or 'an agent'}.",
        f"Entry {entry.position} of the journal.",
    ]
    if words.get("planned"):
        facts.insert(3, "An effect planned the same, but was never dispatched.")
    path = f"/code-hosts/{words['delivery']}/" if "delivery" in words else "/code-hosts/"
    headline = f"Acted outside Gatebook: {sender} {what} on {host}"
    return NotificationText(headline, facts, path, {"effect": None, "event": str(entry.subject)})
