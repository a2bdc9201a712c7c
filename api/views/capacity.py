"""Endpoints for capacity reports, readable by all agents of the project."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse

from accounts.models import Agent
from api import writer_refusals
from api.endpoint import Call, build_json_response, dispatch_by_method, get_endpoint, post_command
from api.idempotency import Reply
from api.pagination import DEFAULT_LIMIT, MAX_LIMIT, parse_parameters, parse_whole_number
from api.preconditions import require_session_id
from api.problems import Problem, build_agent_unknown
from api.schemas.messages import ReportCapacity
from db.clock import now_us
from journal.entries import Origin
from sessions import capacity
from sessions.models import Capacity


@post_command(ReportCapacity, "capacity.reported")
def report_capacity(
    call: Call, fields: ReportCapacity, origin: Origin, _path: dict[str, UUID]
) -> Reply:
    """Record a capacity report; return whether the agent's plans are throttled."""
    values = {name: getattr(fields, name) for name in capacity.CAPACITY_FIELDS}
    if all(value is None for value in values.values()):
        detail = f"The report is empty. Send at least one of {', '.join(capacity.CAPACITY_FIELDS)}."
        raise Problem(422, "invalid", detail)
    session = require_session_id(call.project, fields.session) if fields.session else None
    if (
        session is not None
        and (refuse := writer_refusals.check_lease_epoch(origin, session, "capacity.reported"))
        is not None
    ):
        return refuse
    row = capacity.record_capacity(origin, session, values)
    return Reply(
        200, _state_to_json(row, call.received_us) | {"session": str(session) if session else None}
    )


@get_endpoint
def list_capacity(call: Call) -> HttpResponse:
    """List the latest report of each agent, per session and overall, newest first."""
    params = parse_parameters(call.request, {"session", "agent", "limit"})
    session = require_session_id(call.project, params["session"]) if "session" in params else None
    agent = None
    if "agent" in params:
        agent = (
            Agent.objects.filter(project=call.project, name=params["agent"])
            .values_list("id", flat=True)
            .first()
        )
        if agent is None:
            raise build_agent_unknown("/agent")
    reports = capacity.load_capacity_reports(
        call.project, session, agent, parse_whole_number(params, "limit", DEFAULT_LIMIT, MAX_LIMIT)
    )
    now = now_us()
    return build_json_response(
        200, {"items": [capacity_to_json(row, now) for row in reports], "next": None}
    )


capacity_endpoint = dispatch_by_method(POST=report_capacity, GET=list_capacity)


def capacity_to_json(row: Capacity, now: int) -> dict[str, Any]:
    """Serialize a capacity report."""
    return {
        "agent": row.agent.name,
        "session": str(row.session_id) if row.session_id else None,
        **{name: getattr(row, name) for name in capacity.CAPACITY_FIELDS},
        **_state_to_json(row, now),
    }


def _state_to_json(row: Capacity, now: int) -> dict[str, Any]:
    paced = capacity.is_throttling(row, now)
    return {
        "reported_at_us": row.reported_at_us,
        "fresh": capacity.is_capacity_fresh(row, now),
        "paced": paced,
        "paced_for": row.pace_reason if paced else None,
    }
