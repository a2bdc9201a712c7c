"""Text of a violation notification: the violation, its effect and the link."""

import orjson

from journal.models import Entry
from ledger import violations
from ledger.models import Effect
from notifications.message_text import (
    NotificationText,
    build_call_names,
    defang_text,
    tool_label,
)


def build_violation_notification(entry: Entry) -> NotificationText | None:
    """Build the notification of an `integrity.violation` from columns; never None."""
    name = orjson.loads(entry.facts).get("violation", "")
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
