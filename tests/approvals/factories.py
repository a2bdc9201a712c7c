"""A gate written past the verbs, for tests that only need one to be there."""

from typing import Any
from uuid import UUID

from approvals.models import Gate
from approvals.policies.requirement import Requirement
from db.clock import now_us
from ledger.models import Effect


def gate_of(effect: UUID | str, **columns: Any) -> Gate:
    """A pending gate of an effect, requested now, to be decided within an hour; `columns` go before
    that."""
    held, needed, now = (
        Effect.objects.get(id=effect),
        Requirement().strengthened("irreversible", "high"),
        now_us(),
    )
    lawful = {
        "project_id": held.project_id,
        "session_id": held.session_id,
        "effect": held,
        "agent_id": held.agent_id,
        "opened_position": held.opened_position,
        "plan_position": held.opened_position,
        "digest": "v1:" + "1" * 64,
        "requirement": needed.as_dict(),
        "requirement_hash": needed.hash,
        "risk": "high",
        "reversibility": "irreversible",
        "step_up": needed.step_up,
        "reason_of_yes": needed.reason_of_yes,
        "tool": held.tool,
        "requested_at_us": now,
        "decide_by_us": now + 3_600_000_000,
    }
    return Gate.objects.create(**{**lawful, **columns})
