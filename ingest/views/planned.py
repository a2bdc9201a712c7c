"""The door of an agent that comes back to its own plan: what it meant to do, as the book has it."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse

from approvals.reading import plan_body
from ingest.doors import Call, as_json, reading
from ingest.paging import parameters
from ingest.problems import Problem
from ledger.models import Effect

_TOLD = ("tool", "arguments", "target", "preconditions", "free_text", "turn", "why")


@reading
def get_plan(call: Call, effect: UUID) -> HttpResponse:
    """The plan of an effect, told to the agent that planned it and to no other; secrets were taken out of it.

    `arguments` is missing where the plan was merely reported without them, or erased.
    """
    parameters(call.request, set())
    row = Effect.objects.filter(project=call.project, id=effect, agent=call.token.agent).first()
    if row is None:
        raise Problem(404, "not_found", "This agent has planned no such effect; another agent's plan is not told.")
    body = plan_body(row.plan_position)
    told: dict[str, Any] = {name: body[name] for name in _TOLD if body.get(name) is not None}
    return as_json(200, {"effect": str(row.id), "effect_key": row.effect_key, "redactions": row.redactions, **told})
