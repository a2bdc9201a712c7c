"""Endpoints for capacity reports, readable by all agents of the project."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse

from ingest import fencing
from ingest.doors import Call, as_json, by_method, command, reading
from ingest.paging import MOST, USUAL, parameters, whole_number
from ingest.problems import Problem
from ingest.reply import Reply
from ingest.shapes_messages import ReportCapacity
from journal.clock import now_us
from sessions import capacity, references
from sessions.models import Agent
from sessions.models_messages import Capacity
from sessions.origin import Origin


@command(ReportCapacity, "capacity.reported")
def report_capacity(
    call: Call, fields: ReportCapacity, origin: Origin, _path: dict[str, UUID]
) -> Reply:
    """Record a capacity report; return whether the agent's plans are throttled."""
    values = {name: getattr(fields, name) for name in capacity.FIELDS}
    if all(value is None for value in values.values()):
        detail = f"The report is empty. Send at least one of {', '.join(capacity.FIELDS)}."
        raise Problem(422, "invalid", detail)
    session = _find_session_id(call.project, fields.session) if fields.session else None
    if (
        session is not None
        and (refuse := fencing.check(origin, session, "capacity.reported")) is not None
    ):
        return refuse
    row = capacity.report(origin, session, values)
    return Reply(
        200, _state_to_json(row, call.received_us) | {"session": str(session) if session else None}
    )


@reading
def list_capacity(call: Call) -> HttpResponse:
    """List the latest report of each agent, per session and overall, newest first."""
    params = parameters(call.request, {"session", "agent", "limit"})
    session = _find_session_id(call.project, params["session"]) if "session" in params else None
    agent = None
    if "agent" in params:
        agent = (
            Agent.objects.filter(project=call.project, name=params["agent"])
            .values_list("id", flat=True)
            .first()
        )
        if agent is None:
            raise Problem(
                422,
                "agent_unknown",
                "The project has no such agent. Send the name of one of its agents.",
                pointer="/agent",
            )
    reports = capacity.latest(
        call.project, session, agent, whole_number(params, "limit", USUAL, MOST)
    )
    now = now_us()
    return as_json(200, {"items": [describe(row, now) for row in reports], "next": None})


capacity_door = by_method(POST=report_capacity, GET=list_capacity)


def describe(row: Capacity, now: int) -> dict[str, Any]:
    """Serialize a capacity report."""
    return {
        "agent": row.agent.name,
        "session": str(row.session_id) if row.session_id else None,
        **{name: getattr(row, name) for name in capacity.FIELDS},
        **_state_to_json(row, now),
    }


def _state_to_json(row: Capacity, now: int) -> dict[str, Any]:
    paced = capacity.is_paced(row, now)
    return {
        "reported_at_us": row.reported_at_us,
        "fresh": capacity.is_fresh(row, now),
        "paced": paced,
        "paced_for": row.pace_reason if paced else None,
    }


def _find_session_id(project: UUID, reference: str) -> UUID:
    try:
        return references.find(project, reference).id
    except references.NotFound:
        detail = "The project has no such session. Open it first with POST /sessions."
        raise Problem(404, "not_found", detail) from None
