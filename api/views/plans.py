"""Endpoint that returns an agent's own recorded plan."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse

from api.endpoint import Call, build_json_response, get_endpoint
from api.pagination import parse_parameters
from api.problems import Problem
from approvals.policies.policy_inputs import load_plan_body
from ledger.models import Effect

_PLAN_FIELDS = ("tool", "arguments", "target", "preconditions", "free_text", "turn", "why")


@get_endpoint
def get_plan(call: Call, effect: UUID) -> HttpResponse:
    """Return the plan of an effect, redacted, to the agent that planned it.

    `arguments` is missing if the plan was reported without them or has been erased.
    """
    parse_parameters(call.request, set())
    row = Effect.objects.filter(project=call.project, id=effect, agent=call.token.agent).first()
    if row is None:
        raise Problem(
            404,
            "not_found",
            "No such effect planned by this agent.",
        )
    body = load_plan_body(row.plan_position)
    fields: dict[str, Any] = {
        name: body[name] for name in _PLAN_FIELDS if body.get(name) is not None
    }
    return build_json_response(
        200,
        {
            "effect": str(row.id),
            "effect_key": row.effect_key,
            "redactions": row.redactions,
            **fields,
        },
    )
