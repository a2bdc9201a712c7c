"""Endpoints for decisions."""

from uuid import UUID

from django.http import HttpResponse

from api.endpoint import Call, build_json_response, dispatch_by_method, get_endpoint, post_command
from api.idempotency import Reply
from api.pagination import build_page, parse_parameters, parse_switch
from api.preconditions import (
    check_preconditions,
    conflict_reply,
    lock_session_of_call,
    raise_if_repeated,
)
from api.problems import build_not_found
from api.schemas import working_state as shapes
from api.views.sessions import require_session
from db.ids import derive_uuid
from journal.entries import Origin
from sessions import decisions
from sessions.models import Decision


@post_command(shapes.RecordDecision, "decision.recorded")
def record_decision(
    call: Call, fields: shapes.RecordDecision, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record a decision before acting on it, or return the decision that has this key."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_preconditions(call, origin)) is not None:
        return refuse
    existing = decisions.query_decisions(session).filter(key=fields.key).first()
    if existing is not None and existing.recorded_position is not None:
        stored = decisions.decision_to_json(existing)
        if stored["choice"] not in (None, fields.choice):  # None: erased
            sentence = (
                "This key belongs to a decision with another choice. Read it, or use another key."
            )
            return conflict_reply("DECISION_DIFFERS", sentence, origin, {"decision": stored})
        raise_if_repeated(origin)
        return Reply(200, decisions.summarize_decision(existing), kept=False)
    effect = derive_uuid(session.id, fields.effect_key) if fields.effect_key else None
    return Reply(
        201,
        decisions.summarize_decision(
            decisions.save_decision(origin, session.id, fields.key, effect)
        ),
    )


@post_command(shapes.ConcludeDecision, "decision.concluded")
def conclude_decision(
    call: Call, fields: shapes.ConcludeDecision, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record how a decision ended. Only the first end counts."""
    lock_session_of_call(call, _find_decision(call.project, path["decision"]).session_id)
    row = _find_decision(call.project, path["decision"])
    current = {"decision": decisions.summarize_decision(row)}
    if (refuse := check_preconditions(call, origin, row.version, lambda: current)) is not None:
        return refuse
    if row.status != "open":
        sentence = (
            "This decision is already concluded. Read its outcome, or record a new decision with"
            " another key."
        )
        return conflict_reply("DECISION_CONCLUDED", sentence, origin, current)
    return Reply(
        200,
        decisions.summarize_decision(decisions.save_decision_outcome(origin, row, fields.status)),
    )


@get_endpoint
def list_decisions(call: Call, session: UUID) -> HttpResponse:
    """List decisions of a session, newest first; with open=1 only open ones."""
    params = parse_parameters(call.request, {"open", "limit", "after"})
    open_only = parse_switch(params, "open", "open decisions")
    rows = decisions.query_decisions(require_session(call.project, session), open_only=open_only)
    return build_json_response(200, build_page(rows, params, decisions.decision_to_json))


decisions_endpoint = dispatch_by_method(POST=record_decision, GET=list_decisions)


def _find_decision(project: UUID, identity: UUID) -> Decision:
    row = Decision.objects.filter(project=project, id=identity).first()
    if row is None:
        raise build_not_found("decision")
    return row
