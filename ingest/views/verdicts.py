"""Endpoints for recovery: the verdict on an effect, and probe results."""

from uuid import UUID

from django.http import HttpResponse

from approvals import leave
from ingest import judged, shapes_verdicts
from ingest.described import describe, refused
from ingest.doors import Call, as_json, command, reading
from ingest.paging import parameters
from ingest.problems import Problem
from ingest.reply import Reply
from ledger import probes, same_calls
from ledger.models import Effect
from sessions import sessions
from sessions.origin import Origin


@reading
def get_verdict(call: Call, effect: UUID) -> HttpResponse:
    """Return the verdict on an effect. `process` is the worker's name in its lease."""
    params = parameters(call.request, {"process"})
    row = Effect.objects.filter(project=call.project, id=effect).first()
    if row is None:
        raise _effect_not_found()
    body = {"effect": describe(row), **judged.present(call.project, row, params.get("process", ""))}
    return as_json(200, body | same_calls.told(same_calls.of_effects([row.id]), row.id))


@command(shapes_verdicts.ProbeEffect, "effect.probed")
def probe_effect(
    call: Call, fields: shapes_verdicts.ProbeEffect, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record a probe result, return the verdict. A hit acknowledges the attempt."""
    try:
        answered = probes.probe(
            origin,
            path["effect"],
            attempt=fields.attempt,
            found=fields.found,
            external_reference=fields.external_reference or "",
            began_us=fields.began_us,
            observe=leave.observe,
        )
    except LookupError:
        raise _effect_not_found() from None
    if answered.refusal is not None:
        return refused(answered)
    leave.follow([answered.effect], origin.received_us)
    sessions.seen(call.project, answered.effect.session_id, call.received_us)
    verdict = judged.present(call.project, answered.effect)
    return Reply(200, {"effect": describe(answered.effect), **verdict}, kept=False)


def _effect_not_found() -> Problem:
    return Problem(
        404, "not_found", "The project has no such effect. Plan it first with POST /effects."
    )
