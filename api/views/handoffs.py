"""Endpoints for handoffs."""

from uuid import UUID

from django.http import HttpResponse

from api.endpoint import Call, build_json_response, dispatch_by_method, get_endpoint, post_command
from api.events.working_state import measure_handoff_fields
from api.handoff_references import resolve_waits
from api.idempotency import Reply
from api.pagination import build_page, parse_parameters
from api.preconditions import (
    check_preconditions,
    conflict_reply,
    lock_session_of_call,
)
from api.problems import build_not_found
from api.schemas import working_state as shapes
from api.views.sessions import require_session
from journal.entries import Origin
from recovery import detectors
from sessions import handoffs
from sessions.models import Handoff


@post_command(shapes.WriteHandoff, "handoff.written")
def write_handoff(
    call: Call, fields: shapes.WriteHandoff, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Write a handoff for the next worker, in five sections."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_preconditions(call, origin)) is not None:
        return refuse
    waits_on = resolve_waits(call.project, call.token.agent, session.id, fields.waits_on)
    written = handoffs.save_handoff(origin, session.id, measure_handoff_fields(fields), waits_on)
    detectors.check_session_controls(session.id, call.received_us)
    return Reply(201, handoffs.summarize_handoff(written))


@post_command(shapes.AcceptHandoff, "handoff.accepted")
def accept_handoff(
    call: Call, _fields: shapes.AcceptHandoff, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Accept a handoff. Only the first worker gets it."""
    lock_session_of_call(call, _find_handoff(call.project, path["handoff"]).session_id)
    row = _find_handoff(call.project, path["handoff"])
    current = {"handoff": handoffs.summarize_handoff(row)}
    if (refuse := check_preconditions(call, origin, row.version, lambda: current)) is not None:
        return refuse
    if row.accepted_mark:
        sentence = "Another worker has accepted this handoff. Do not take over its work."
        return conflict_reply("HANDOFF_ACCEPTED", sentence, origin, current)
    # Before acceptance, because what the handoff waits for may have ended.
    detectors.check_session_controls(row.session_id, call.received_us)
    return Reply(200, handoffs.summarize_handoff(handoffs.save_handoff_acceptance(origin, row)))


@get_endpoint
def list_handoffs(call: Call, session: UUID) -> HttpResponse:
    """List handoffs of a session, newest first."""
    params = parse_parameters(call.request, {"limit", "after"})
    return build_json_response(
        200,
        build_page(
            handoffs.query_handoffs(require_session(call.project, session)),
            params,
            handoffs.handoff_to_json,
        ),
    )


handoffs_endpoint = dispatch_by_method(POST=write_handoff, GET=list_handoffs)


def _find_handoff(project: UUID, identity: UUID) -> Handoff:
    row = Handoff.objects.filter(project=project, id=identity).first()
    if row is None:
        raise build_not_found("handoff")
    return row
