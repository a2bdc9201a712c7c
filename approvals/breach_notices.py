"""How a breach is told to those who do not look: what was found, of which effect, and its page."""

import orjson

from approvals.delivery import Telling, inert, tool_of
from journal.models import Entry
from ledger import breaches
from ledger.models import Effect


def telling(entry: Entry) -> Telling | None:
    """What to say of an `integrity.violation`, in columns alone; there is always something to tell."""
    name = orjson.loads(entry.facts).get("violation", "")
    found = breaches.WORDS.get(name, name).rstrip(".")
    known = Effect.objects.filter(project=entry.project).select_related("agent", "repository", "session")
    effect = known.get(id=str(entry.effect))
    place = [effect.repository and effect.repository.name, effect.ref, effect.ref_class, effect.environment]
    tool = tool_of(effect.project_id, effect.tool) or "an effect without a plan"
    agent = inert(effect.agent.name)
    facts = [
        f"{found}.",
        f"{agent} used {tool}{''.join(f', {inert(word)}' for word in place if word)}, in {effect.session}.",
        f"Entry {entry.position} of the journal.",
    ]
    path = f"/effects/{effect.id}/?fact={entry.position}#p{entry.position}"
    return Telling(f"{found}: {tool} by {agent} ({effect})", facts, path, {"effect": str(effect.id)})
