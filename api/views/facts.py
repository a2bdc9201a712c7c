"""Endpoints for observed facts."""

from uuid import UUID

from django.http import HttpResponse

from api.endpoint import Call, build_json_response, dispatch_by_method, get_endpoint, post_command
from api.idempotency import Reply
from api.pagination import build_page, parse_parameters, parse_switch
from api.preconditions import (
    check_preconditions,
    lock_session_of_call,
)
from api.schemas import working_state as shapes
from api.strictjson.canonical_json import to_canonical_text
from api.views.sessions import require_session
from journal.entries import Origin
from recovery import detectors
from sessions import facts


@post_command(shapes.ObserveFact, "fact.observed")
def observe_fact(
    call: Call, fields: shapes.ObserveFact, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record a value observed from a source. The latest per source counts."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_preconditions(call, origin)) is not None:
        return refuse
    digest = facts.digest_fact_value(call.project, to_canonical_text(fields.value))
    row = facts.record_observed_fact(
        origin,
        session.id,
        fields.name,
        fields.source,
        digest,
        fields.fresh_s or facts.DEFAULT_FACT_FRESH_S,
    )
    drifting = facts.find_conflicting_facts(
        facts.load_fresh_facts_by_name(session, fields.name, call.received_us)
    )
    if drifting:
        detectors.check_session_controls(session.id, call.received_us)
    body = {
        "name": row.name,
        "source": row.source,
        "fresh_until_us": row.fresh_until_us,
        "drift": bool(drifting),
    }
    return Reply(201, body | {"position": row.position})


@get_endpoint
def list_facts(call: Call, session: UUID) -> HttpResponse:
    """List observed facts, newest first. Filters: `fresh=1` (unexpired), `name`."""
    params = parse_parameters(call.request, {"name", "fresh", "limit", "after"})
    is_fresh = parse_switch(params, "fresh", "unexpired facts")
    rows = facts.query_observed_facts(require_session(call.project, session))
    if is_fresh:
        rows = rows.filter(fresh_until_us__gte=call.received_us)
    if "name" in params:
        rows = rows.filter(name=params["name"])
    return build_json_response(
        200, build_page(rows, params, lambda row: facts.fact_to_json(row, call.received_us))
    )


facts_endpoint = dispatch_by_method(POST=observe_fact, GET=list_facts)
