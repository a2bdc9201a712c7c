"""Detect repeated plan reports, which keep their first policy result.

Checked only where plans of one effect have different results. Then bodies are read, because rules
see free text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson
from django.db.models import F

from db import long_numbers
from journal.models import Entry
from journal.order_keys import is_command_mark
from ledger.fold import effect_state
from ledger.fold.effect_state import Fact
from ledger.store.effect_rows import EffectRow


def find_repeated_plans(
    rows: Mapping[UUID, EffectRow], facts_by_effect: Mapping[UUID, Sequence[Fact]]
) -> set[int]:
    """Return the positions of plans that repeat an earlier plan of their effect.

    `rows` are the stored effects. No query where all plans of each effect, including the stored
    one, have the same policy result. Imported plans have no live result to repeat, and the content
    of erased ones is unknown.
    """
    plans_by_effect = {}
    for effect, facts in facts_by_effect.items():
        row = rows.get(effect)
        has_plan = row is not None and bool(row.planned_mark)
        if has_plan or len(facts) > 1:
            plans = [fact for fact in facts if fact.kind == "effect.planned" and not fact.imports]
            if len(plans) + has_plan > 1 and _differ_in_result(row, plans):
                plans_by_effect[effect] = plans
    if not plans_by_effect:
        return set()
    first_positions = _first_positions(plans_by_effect)
    now = {
        fact.position for plans_of_effect in plans_by_effect.values() for fact in plans_of_effect
    }
    return {
        position
        for position, earliest in first_positions.items()
        if position in now and position > earliest
    }


def _differ_in_result(row: EffectRow | None, plans: Sequence[Fact]) -> bool:
    """True if the order of `plans` matters; next to a command's plan it does not."""
    outcomes = {effect_state.policy_result_of_plan(fact.values) for fact in plans}
    if plans and row is not None and row.planned_mark:
        if is_command_mark(row.planned_mark):
            return False
        outcomes.add(effect_state.policy_result_of_effect(row))
    return len(outcomes) > 1


def _first_positions(effects: Iterable[UUID]) -> dict[int, int]:
    """Map each reported plan's position to the position of the first identical plan."""
    entries = Entry.objects.filter(effect__in=list(effects), kind="effect.planned", lane="evidence")
    rows = entries.annotate(text=F("body__text")).order_by("position")
    first: dict[tuple[UUID | None, str, bytes], int] = {}
    earliest = {}
    for effect, position, source, facts, text in rows.values_list(
        "effect", "position", "source", "facts", "text"
    ):
        if text is not None and not orjson.loads(facts).get("imported"):
            earliest[position] = first.setdefault(
                (effect, source, _policy_evaluation(long_numbers.parse_json(text))), position
            )
    return earliest


def _policy_evaluation(body: Mapping[str, Any]) -> bytes:
    """Return a plan's policy inputs in canonical form, with empty values left out."""
    target = {name: value for name, value in (body.get("target") or {}).items() if value}
    return long_numbers.to_json_bytes(
        [body.get("tool"), body.get("arguments") or {}, target], orjson.OPT_SORT_KEYS
    )
