"""Labels of integrity violations, and the violations of an effect."""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Exists, OuterRef, Q

from db.compiled_query import CompiledQuerySet
from journal.models import Entry
from ledger.fold.stop_violations import STOP_VIOLATION
from ledger.models import Effect
from ledger.store.writer import violation_facts

# The only violation without an effect: a code host reported it (hooks/repositories/).
ACTED_OUTSIDE: Final = "acted_outside_gatebook"
VIOLATION_LABELS: Final = {
    "executed_without_permission": "Executed without approval.",
    "executed_while_stopped": "Executed during a stop.",
    "acknowledged_twice": "Acknowledged twice: it may have happened twice.",
    "found_twice": "A probe found it more than once: it happened twice.",
    "happened_after_all": "Resolved as not happened, but it happened.",
    "rejected_after_all": "Resolved as happened, but it was rejected.",
    "happened_after_abandoned": "Abandoned by a person, but it had happened.",
    "withdrawn_after_dispatch": "Withdrawn after its dispatch; the withdrawal does not count.",
    "key_reuse": "Its effect key was used for another intent.",
    "class_claim": "The agent claimed a laxer tool class than was declared.",
    ACTED_OUTSIDE: "Acted outside Gatebook: no effect is behind it.",
}
VIOLATION_NOT_FOUND: Final = "Marked as a violation, but the journal entry was not found."
# Effects that ran without approval or during a stop; use it on effects with violations only.
RAN_WITHOUT_APPROVAL: Final = Q(permission="bypassed") | Exists(
    Entry.objects.filter(
        effect=OuterRef("id"),
        kind="integrity.violation",
        lane="system",
        # A suffix, because an imported entry's facts begin with its origin.
        facts__endswith=violation_facts(STOP_VIOLATION)[1:],
    )
)


def load_effect_violations(effect: Effect) -> list[str]:
    """Return the violations of one effect as labels, empty if there are none."""
    if not effect.violates:
        return []
    return load_violations(effect.project_id, [effect.id]).get(effect.id) or [VIOLATION_NOT_FOUND]


def load_violations(project: UUID, effects: Iterable[UUID]) -> dict[UUID, list[str]]:
    """Return the violations of each effect as labels, oldest first. One query."""
    labels: dict[UUID, list[str]] = {}
    listed = list(effects)
    for effect, facts in _VIOLATIONS.rows(project=project, effects=listed) if listed else ():
        name = orjson.loads(facts)["violation"]
        labels.setdefault(effect, []).append(VIOLATION_LABELS.get(name, name))
    return labels


def _select_violations(project: UUID, effects: Sequence[UUID]) -> Any:
    entries = Entry.objects.filter(
        project=project, effect__in=effects, kind="integrity.violation", lane="system"
    )
    return entries.order_by("position").values_list("effect", "facts")


_VIOLATIONS: Final = CompiledQuerySet(_select_violations, project=UUID, effects=[UUID])
