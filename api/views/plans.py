"""Endpoints that return what an agent itself recorded: its plan, and the stored result."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse

from api.endpoint import Call, build_json_response, get_endpoint
from api.pagination import parse_parameters
from api.problems import Problem, build_effect_not_found
from api.redaction import redact
from approvals.policies.policy_inputs import load_plan_body
from db import long_numbers
from display import entry_bodies
from ledger.models import Attempt, Effect

_PLAN_FIELDS = (
    "tool",
    "arguments",
    "target",
    "preconditions",
    "free_text",
    "call_id",
    "turn",
    "why",
    "meta",
)


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


@get_endpoint
def get_result(call: Call, effect: UUID) -> HttpResponse:
    """Return the stored outcome of an effect, redacted, to the agent that planned it.

    `stored` says what there is: `result`; `none`, where the report had none or a person or a probe
    settled the outcome; or `erased`.
    """
    parse_parameters(call.request, set())
    row = Effect.objects.filter(project=call.project, id=effect).first()
    if row is None:
        raise build_effect_not_found()
    if row.agent_id != call.token.agent:
        detail = "Another agent planned this effect. Only that agent can read its result."
        raise Problem(403, "OTHER_AGENT", detail)
    attempt = find_answered_attempt(row)
    if attempt is None and not row.outcome:
        detail = _NO_RESULT.get(row.state, _NO_RESULT["dispatched"])
        raise Problem(409, "NO_RESULT", detail)
    return build_json_response(200, _result_to_json(row, attempt))


_NO_RESULT = {
    "planned": "The effect was planned and has not run, so there is no result. Dispatch it first.",
    "superseded": "The effect was withdrawn and has not run, so there is no result.",
    "dispatched": (
        "The attempt has no report yet, so there is no result. Wait for it, or ask for the verdict"
        " on the effect."
    ),
}


def find_answered_attempt(effect: Effect) -> Attempt | None:
    """Return the attempt whose report tells the outcome: the newest that was acknowledged.

    Without one, the newest that failed.
    """
    answered = effect.attempts.filter(answer_position__isnull=False).order_by("-number")
    return answered.exclude(acknowledged_mark="").first() or answered.first()


def _result_to_json(effect: Effect, attempt: Attempt | None) -> dict[str, Any]:
    text = None
    if attempt is not None and attempt.answer_position is not None:
        texts = entry_bodies.load_body_texts(effect.project_id, [attempt.answer_position])
        text = texts.get(attempt.answer_position)
    body = {} if text is None else long_numbers.parse_json(text)
    stored = "erased" if attempt is not None and text is None else "none"
    fields: dict[str, Any] = {
        "effect": str(effect.id),
        "handle": f"e_{effect.opened_position}",
        "effect_key": effect.effect_key,
        "call_id": effect.call_id or None,
        "tool": effect.tool,
        "state": effect.state,
        "outcome": effect.outcome or None,
        "external_reference": effect.external_reference or None,
        "attempt": None if attempt is None else attempt.number,
        "position": None if attempt is None else attempt.answer_position,
        "reason": (attempt.failure_reason if attempt is not None else "") or None,
        "detail": body.get("detail"),
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    if body.get("result") is not None:
        stored, fields["result"] = "result", body["result"]
    fields["redacted"] = text is not None and redact.REDACTION_MARK in text
    return fields | {"stored": stored}
