"""Integrity violations: labels, the violations of an effect, and who acknowledged them."""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db.models import Exists, Max, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from accounts.people import ensure_pseudonym
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from db.errors import ChangeRefused
from db.ids import new_uuid7
from journal import entries
from journal.models import Entry
from ledger.fold.stop_violations import STOP_VIOLATION
from ledger.models import Effect
from ledger.store.writer import violation_facts

# The only violation without an effect: a code host reported it (hooks/code_hosts/).
ACTED_OUTSIDE: Final = "acted_outside_gatebook"
UNPERMITTED: Final = "executed_without_permission"
VIOLATION_LABELS: Final = {
    UNPERMITTED: "Executed without approval.",
    "executed_while_stopped": "Executed during a stop.",
    "acknowledged_twice": "Acknowledged twice: it may have happened twice.",
    "found_twice": "A probe found it more than once: it happened twice.",
    "happened_after_all": "Resolved as not happened, but it happened.",
    "rejected_after_all": "Resolved as happened, but it was rejected.",
    "happened_after_abandoned": "Abandoned by a person, but it had happened.",
    "withdrawn_after_dispatch": "Withdrawn after its dispatch; the withdrawal does not count.",
    "key_reuse": "Its effect key was used for another intent.",
    "class_claim": "The agent claimed a laxer tool class than was declared.",
    ACTED_OUTSIDE: "Acted outside Gatebook: no effect matches it.",
}
VIOLATION_NOT_FOUND: Final = "Marked as a violation, but the journal entry was not found."
# What a person has seen and said about such an effect. It changes no state and hides nothing.
ACKNOWLEDGED_KIND: Final = "integrity.acknowledged"
MIN_REASON: Final = 10
MAX_REASON: Final = 1_000
MAX_POSITION: Final = 2**63 - 1


def is_unacknowledged(upto: int = MAX_POSITION) -> Q:
    """Return the condition of effects whose last run without approval nobody acknowledged.

    That is a run without approval or during a stop. Entries above position `upto` do not count.
    """
    ran = Q(kind="integrity.violation") & (
        Q(facts__endswith=violation_facts(UNPERMITTED)[1:])
        | Q(facts__endswith=violation_facts(STOP_VIOLATION)[1:])
    )
    # The kinds are no conditions of the rows: PostgreSQL would join all violations of a project to
    # all of its effects that violate. So it reads the few entries of each such effect, once.
    entries_of_effect = Entry.objects.filter(
        effect=OuterRef("id"), lane="system", position__lte=upto
    ).order_by()
    last = entries_of_effect.values("effect").annotate(
        ran=Max("position", filter=ran),
        acknowledged=Max("position", filter=Q(kind=ACKNOWLEDGED_KIND)),
    )
    return Q(Exists(last.filter(ran__gt=Coalesce("acknowledged", 0))), violates=True)


def query_unacknowledged(project: UUID) -> "QuerySet[Effect]":
    """Return the effects that ran without approval or during a stop, not acknowledged since."""
    return Effect.objects.filter(is_unacknowledged(), project=project)


def acknowledge_violations(effects: Iterable[Effect], reason: str, by: User) -> int:
    """Record that a person has seen these effects; return how many were not acknowledged yet.

    One entry for each, with the person and the reason. Must run inside a transaction. Raises
    ChangeRefused without a reason.
    """
    words = reason.strip()
    if not MIN_REASON <= len(words) <= MAX_REASON:
        raise ChangeRefused(f"Enter a reason of {MIN_REASON} to {MAX_REASON} characters.")
    listed = [effect.pk for effect in effects]
    # Two people who acknowledge at once take turns: the second finds nothing to acknowledge.
    locked = list(Effect.objects.select_for_update().filter(pk__in=listed).order_by("pk"))
    open_ids = set(
        Effect.objects.filter(is_unacknowledged(), pk__in=listed).values_list("pk", flat=True)
    )
    now, actor = now_us(), ensure_pseudonym(by)
    for effect in locked:
        if effect.pk in open_ids:
            entries.record_system_entry(
                effect.project_id,
                ACKNOWLEDGED_KIND,
                event_id=new_uuid7().hex,
                text=entries.dump_sorted_json(
                    {"kind": ACKNOWLEDGED_KIND, "effect": effect.id, "reason": words}
                ),
                received_us=now,
                actor=actor,
                session=effect.session_id,
                effect=effect.id,
            )
    return len(open_ids)


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
