"""A gate written without the services, for tests that only need a gate."""

from typing import Any
from uuid import UUID

from approvals.models import Gate
from approvals.policies.engine import Requirement
from db.clock import now_us
from ledger.models import Effect
from tests.rows_with_entries import add_row


def gate_of(effect: UUID | str, **columns: Any) -> Gate:
    """A pending gate of an effect, requested now, with an hour to decide; `columns` override the
    defaults."""
    effect_row, needed, now = (
        Effect.objects.get(id=effect),
        Requirement().strengthened("irreversible", "high"),
        now_us(),
    )
    lawful = {
        "project_id": effect_row.project_id,
        "session_id": effect_row.session_id,
        "effect": effect_row,
        "agent_id": effect_row.agent_id,
        "opened_position": effect_row.opened_position,
        "plan_position": effect_row.opened_position,
        "digest": "v1:" + "1" * 64,
        "requirement": needed.as_dict(),
        "requirement_hash": needed.hash,
        "risk": "high",
        "reversibility": "irreversible",
        "step_up": needed.step_up,
        "reason_of_yes": needed.reason_of_yes,
        "tool": effect_row.tool,
        "requested_at_us": now,
        "decide_by_us": now + 3_600_000_000,
    }
    gate = Gate(**{**lawful, **columns})
    add_row(gate)
    return gate
