"""What the book says that must not have been: the names of `integrity.violation`, in words for people."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

import orjson
from django.db.models import Exists, OuterRef, Q

from journal.models import Entry
from ledger.effects import facts_of
from ledger.models import Effect
from ledger.stopped import BREACH

WORDS: Final = {
    "executed_without_leave": "Executed without approval.",
    "executed_while_on_hold": "Executed while on hold.",
    "acknowledged_twice": "Acknowledged twice: it may have happened twice.",
    "found_twice": "A look at the remote found it more than once: it happened twice.",
    "happened_after_all": "A person said that an attempt of it did not happen, and it did.",
    "rejected_after_all": "A person said that it happened, and it was rejected.",
    "happened_after_abandoned": "A person abandoned it, and it had happened.",
    "withdrawn_after_dispatch": "It was withdrawn although it had been dispatched; the withdrawal does not count.",
    "key_reuse": "Its key was used for another intent.",
    "class_claim": "The agent claimed a laxer class of tool than was declared.",
}
NOT_FOUND: Final = "It is marked as a breach, and the entry that says which was not found."
# Effects that ran although people had not let them, or had stopped them; best asked among those that violate.
RAN_ALL_THE_SAME: Final = Q(leave="bypassed") | Exists(
    Entry.objects.filter(
        effect=OuterRef("id"),
        kind="integrity.violation",
        lane="system",
        # of one that a bundle brought, its origin stands before
        facts__endswith=facts_of(BREACH)[1:],
    )
)


def of(effect: Effect) -> list[str]:
    """What was found of one effect, in words; nothing where all is well."""
    if not effect.violates:
        return []
    return told(effect.project_id, [effect.id]).get(effect.id) or [NOT_FOUND]


def told(project: UUID, effects: Iterable[UUID]) -> dict[UUID, list[str]]:
    """What was found of each effect, in the order it was found; effects without a breach are left out. One query."""
    entries = Entry.objects.filter(
        project=project, effect__in=list(effects), kind="integrity.violation", lane="system"
    )
    labels: dict[UUID, list[str]] = {}
    for entry in entries.order_by("position").only("effect", "facts"):
        name = orjson.loads(entry.facts)["violation"]
        if entry.effect is not None:
            labels.setdefault(entry.effect, []).append(WORDS.get(name, name))
    return labels
