"""Calls that others settled after their process died: a person, or the code host.

The agent knows nothing of it, and its model repeats such a call under a new id. So the next call of
the intent is answered with what is known instead of being run; the journal keeps that the model was
answered. From the next turn on, an equal call is a new one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

import orjson
from django.db.models import Q

from api.endpoint import Call
from hooks.coding_agents.hook_events import HookEvent
from hooks.coding_agents.hook_facts import build_fact, record_facts
from hooks.coding_agents.hook_sessions import build_fact_key
from journal.models import Entry
from ledger import resolutions
from ledger.models import Effect
from ledger.store.effect_rows import AttemptRow, EffectRow

_ANSWERED: Final = "hook.settled_call_answered"
_RESOLUTIONS: Final = ("happened", "abandoned")
# Effects that may be settled so; whether their agent knows it is seen from their attempts.
MAY_BE_SETTLED: Final = Q(resolution__in=_RESOLUTIONS) | (
    Q(state="acknowledged") & ~Q(confirmed_by="")
)


def find_unknown_settlement(
    call: Call,
    event: HookEvent,
    rows: Sequence[EffectRow],
    attempts: Mapping[UUID, Mapping[int, AttemptRow]],
) -> EffectRow | None:
    """Return the newest effect that others settled and the model has not read of."""
    settled = [row for row in rows if _is_settled(row, attempts.get(row.id, {}).values())]
    for row in reversed(settled):
        if not _was_answered(call, event, row):
            return row
    return None


def _is_settled(row: EffectRow, attempts: Iterable[AttemptRow]) -> bool:
    """True if a person or the code host settled what the agent reported no result of."""
    is_resolved = row.resolution in _RESOLUTIONS and row.state in ("acknowledged", "superseded")
    is_confirmed = bool(row.confirmed_by) and row.state == "acknowledged"
    return (is_resolved or is_confirmed) and not any(
        attempt.acknowledged_mark for attempt in attempts
    )


def _was_answered(call: Call, event: HookEvent, row: EffectRow) -> bool:
    """True if the model read it in another turn; a call of the same turn reads it again."""
    entries = Entry.objects.filter(
        project=call.project, source=call.token.agent_name, event_id=_build_key(row)
    )
    text = entries.values_list("body__text", flat=True).first()
    if text is None:
        return entries.exists()  # its text was erased
    stored = orjson.loads(text)
    same_turn = bool(event.turn) and stored.get("turn") == event.turn
    same_call = bool(event.call_id) and stored.get("tool_use_id") == event.call_id
    return not (same_turn or same_call)


def record_answer(call: Call, event: HookEvent, row: EffectRow) -> None:
    """Record that the model reads how its call was settled; once for each effect."""
    key = _build_key(row)
    if Entry.objects.filter(
        project=call.project, source=call.token.agent_name, event_id=key
    ).exists():
        return
    values = {
        "client": event.client,
        "effect": str(row.id),
        "tool_use_id": event.call_id,
        "turn": event.turn,
    }
    record_facts(call, [build_fact(event, _ANSWERED, key, event.session_key, values)])


def load_resolver_words(row: EffectRow) -> str:
    """Return how the person knew what they stated; empty without a resolution."""
    if row.resolution not in _RESOLUTIONS:
        return ""
    stored = resolutions.load_resolutions(Effect.objects.get(id=row.id))
    words = (entry.rationale for entry in stored if entry.answer == row.resolution)
    return next(words, None) or ""


def _build_key(row: EffectRow) -> str:
    return build_fact_key(_ANSWERED, row.id)
