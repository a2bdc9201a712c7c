"""Plans that were told before: whoever says the same of an effect again is not judged again, whatever holds by now.

Asked only where plans of one effect were judged differently. Then bodies are read: what rules look at is free text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson
from django.db.models import F

from journal import exact
from journal.models import Entry
from journal.order import is_of_a_command
from ledger import judgement
from ledger.fold import Fact
from ledger.rows import EffectRow


def repeated(
    rows: Mapping[UUID, EffectRow], facts_by_effect: Mapping[UUID, Sequence[Fact]]
) -> set[int]:
    """The positions of those plans among the facts `told`, by effect, that repeat one which was judged when it came.

    `rows` are the effects that are stored. No query where the plans of each effect, those told now and the one that
    stands, were judged alike. What was imported was not judged as what is live; and what an erased body said nobody
    knows.
    """
    plans_by_effect = {}
    for effect, facts in facts_by_effect.items():
        row = rows.get(effect)
        has_plan = row is not None and bool(row.planned_mark)
        if has_plan or len(facts) > 1:
            plans = [fact for fact in facts if fact.kind == "effect.planned" and not fact.imports]
            if len(plans) + has_plan > 1 and _differ(row, plans):
                plans_by_effect[effect] = plans
    if not plans_by_effect:
        return set()
    first = _first_said(plans_by_effect)
    now = {
        fact.position for plans_of_effect in plans_by_effect.values() for fact in plans_of_effect
    }
    return {
        position for position, earliest in first.items() if position in now and position > earliest
    }


def _differ(row: EffectRow | None, plans: Sequence[Fact]) -> bool:
    """Whether it matters which of `plans` were told before; beside a command's plan it does not."""
    outcomes = {judgement.said_of(fact.values) for fact in plans}
    if plans and row is not None and row.planned_mark:
        if is_of_a_command(row.planned_mark):
            return False
        outcomes.add(judgement.of(row))
    return len(outcomes) > 1


def _first_said(effects: Iterable[UUID]) -> dict[int, int]:
    """For each reported plan of `effects`, by its position, the position of the first that said the same."""
    entries = Entry.objects.filter(effect__in=list(effects), kind="effect.planned", lane="evidence")
    rows = entries.annotate(text=F("body__text")).order_by("position")
    first: dict[tuple[UUID | None, str, bytes], int] = {}
    earliest = {}
    for effect, position, source, facts, text in rows.values_list(
        "effect", "position", "source", "facts", "text"
    ):
        if text is not None and not orjson.loads(facts).get("imported"):
            earliest[position] = first.setdefault(
                (effect, source, _what_rules_see(exact.loads(text))), position
            )
    return earliest


def _what_rules_see(body: Mapping[str, Any]) -> bytes:
    """What a plan says that a rule may look at, in one form; what is empty says as much as what is left out."""
    target = {name: value for name, value in (body.get("target") or {}).items() if value}
    return exact.dumps(
        [body.get("tool"), body.get("arguments") or {}, target], orjson.OPT_SORT_KEYS
    )
