"""Endpoints for recovery: the verdict on an effect, and probe results."""

from uuid import UUID

from django.http import HttpResponse

from accounts.origin import Origin
from api.endpoint import Call, build_json_response, get_endpoint, post_command
from api.pagination import parse_parameters
from api.problems import build_effect_not_found
from api.reply import Reply
from api.schemas import probes as schemas_probes
from api.serializers import verdicts
from api.serializers.effects import build_effect_refusal, effect_to_json
from approvals import gated_commands
from ledger import probes, same_calls
from ledger.models import Effect
from sessions import sessions


@get_endpoint
def get_verdict(call: Call, effect: UUID) -> HttpResponse:
    """Return the verdict on an effect. `process` is the worker's name in its lease."""
    params = parse_parameters(call.request, {"process"})
    row = Effect.objects.filter(project=call.project, id=effect).first()
    if row is None:
        raise build_effect_not_found()
    body = {
        "effect": effect_to_json(row),
        **verdicts.evaluate_verdict_json(call.project, row, params.get("process", "")),
    }
    return build_json_response(
        200,
        body | same_calls.same_calls_to_json(same_calls.load_links_of_effects([row.id]), row.id),
    )


@post_command(schemas_probes.ProbeEffect, "effect.probed")
def probe_effect(
    call: Call, fields: schemas_probes.ProbeEffect, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record a probe result, return the verdict. A hit acknowledges the attempt."""
    try:
        answered = probes.record_probe(
            origin,
            path["effect"],
            attempt=fields.attempt,
            result=fields.result,
            external_reference=fields.external_reference or "",
            began_us=fields.began_us,
            observe=gated_commands.classify_observation,
        )
    except LookupError:
        raise build_effect_not_found() from None
    if answered.refusal is not None:
        return build_effect_refusal(answered)
    gated_commands.end_gates_of_moved_effects([answered.effect], origin.received_us)
    sessions.touch_session_nowait(call.project, answered.effect.session_id, call.received_us)
    verdict = verdicts.evaluate_verdict_json(call.project, answered.effect)
    return Reply(200, {"effect": effect_to_json(answered.effect), **verdict}, kept=False)
