"""Endpoints for gates: read, wait for a ruling, cancel a request.

No endpoint lets a token vote, revoke, set a stop or change policy.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from api.endpoint import (
    Call,
    authenticate_request,
    build_json_response,
    convert_to_struct,
    get_endpoint,
    handle_errors,
    parse_body_object,
    post_command,
)
from api.idempotency import Reply
from api.pagination import build_page, check_choice, parse_parameters, parse_whole_number
from api.path_converters import resolve_path
from api.preconditions import check_preconditions, lock_session_of_call
from api.problems import build_not_found
from api.schemas import core
from approvals.gates import cancel, gates, listener
from approvals.gates.comments import load_comments
from approvals.gates.statuses import GATE_STATUSES, OPEN_STATUSES
from approvals.models import Gate, Vote
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from journal.entries import Origin
from journal.models import Body
from ledger import stops
from ledger.models import Effect, Stop
from sessions import lookup

MAX_LONG_POLL_S: Final = 55
GATE_RETRY_AFTER_S: Final = 1  # Retry-After if no waiting slot was free, or no wait was requested
STOPPED_RETRY_AFTER_S: Final = (
    5  # Retry-After during a stop, which has no end that could be awaited
)
US_PER_SECOND: Final = 1_000_000

# The `reason` of a gate by its status, unless a stored reason is shown.
_REASON_BY_STATUS: Final = {
    "pending": "not_resolved",
    "approved": None,
    "used": "already_used",
}
_SHOWN_REASONS: Final = (
    "digest_mismatch",
    "precondition_changed",
    "requirement_changed",
    "quorum_lost",
    "by_agent",
    "session_ended",
    "superseded",
    "bypassed",
    "happened",
    "denied_session",
    "undone",
)
_MESSAGE_ANSWERS: Final = {
    "denied": ("deny",),
    "denied_session": ("deny_session",),
    "changes_requested": ("request_changes",),
}


@handle_errors("GET", "HEAD")
def get_gate(request: HttpRequest, gate: UUID | str) -> HttpResponseBase:
    """Return one gate, at once or as soon as it is newer than `since`."""
    call = authenticate_request(request)
    params = parse_parameters(request, {"wait", "since"})
    since = {
        resolve_path(call.project, {"gate": gate})["gate"]: parse_whole_number(
            params, "since", -1, 2**31 - 1, least=0
        )
    }
    state = _wait_for_change(
        call, since, parse_whole_number(params, "wait", 0, MAX_LONG_POLL_S, least=0)
    )
    (body,) = state.bodies
    tag = f'"{body["version"]}-{body["status"]}{"-stopped" if body["stopped"] else ""}"'
    unchanged = tag in request.META.get("HTTP_IF_NONE_MATCH", "")
    response = HttpResponse(status=304) if unchanged else build_json_response(200, body)
    response["ETag"] = tag
    return _add_retry_after(response, state)


@handle_errors("POST")
def wait_for_gates(request: HttpRequest) -> HttpResponseBase:
    """Wait for several gates; return when one is newer than the version sent with it."""
    call = authenticate_request(request)
    fields = convert_to_struct(parse_body_object(request).value, core.WaitForGates)
    state = _wait_for_change(
        call, {UUID(gate): since for gate, since in fields.gates.items()}, fields.wait
    )
    return _add_retry_after(
        build_json_response(200, {"gates": state.bodies, "changed": state.changed}), state
    )


@post_command(core.CancelGate, "gate.cancelled", gate="gate")
def cancel_gate(
    call: Call, fields: core.CancelGate, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Cancel a request. A gate that has ended does not change."""
    gate = cancel.find_gate_to_cancel(origin, path["gate"])
    if gate is None:
        raise build_not_found("gate")
    if fields.lease_epoch is not None:
        lock_session_of_call(call, gate.session_id)
        call.task = gate.effect.task_id
        # The lookup above has checked the agent.
        if (refuse := check_preconditions(call, origin, speaks=False)) is not None:
            return refuse
    cancelled = cancel.cancel_gate_by_agent(origin, gate)
    (body,) = _gates_to_json(call.project, [cancelled])
    return Reply(200, body)


@get_endpoint
def list_gates(call: Call) -> HttpResponse:
    """List gates of the project, newest first."""
    params = parse_parameters(call.request, {"session", "effect", "status", "limit", "after"})
    rows = Gate.objects.filter(project=call.project)
    check_choice(params, "status", GATE_STATUSES)
    if "status" in params:
        rows = rows.filter(_status_condition(params["status"], now_us()))
    if "session" in params:
        rows = rows.filter(session=lookup.resolve_session_id(call.project, params["session"]))
    if "effect" in params:
        effect = resolve_path(call.project, {"effect": params["effect"]})["effect"]
        rows = rows.filter(effect=effect)
    result = build_page(rows, params, lambda gate: gate)
    return build_json_response(
        200, result | {"items": _gates_to_json(call.project, result["items"])}
    )


class _GateStates:
    """The gates of a response: bodies, changed ids, and when to retry."""

    def __init__(self, bodies: list[dict[str, Any]], since: Mapping[UUID, int]) -> None:
        self.bodies = bodies
        self.changed = [body["id"] for body in bodies if _is_changed(body, since[UUID(body["id"])])]
        self.versions = {UUID(body["id"]): body["version"] for body in bodies}
        self.retry_after_s: int | None = 0
        if any(body["stopped"] for body in bodies):
            self.retry_after_s = STOPPED_RETRY_AFTER_S
        elif all(body["status"] not in OPEN_STATUSES for body in bodies):
            self.retry_after_s = None


def _is_changed(body: Mapping[str, Any], since: int) -> bool:
    """Return whether a gate is newer than `since`; -1 waits for a ruling."""
    if body["stopped"] or body["status"] not in OPEN_STATUSES:
        return True
    return bool(body["status"] != "pending" if since < 0 else body["version"] > since)


def _wait_for_change(call: Call, since: Mapping[UUID, int], wait_s: int) -> _GateStates:
    """Wait at most `wait_s` until one of the gates has changed; return all of them."""
    until = time.monotonic() + wait_s
    state = _GateStates([], since)

    def read() -> bool | None:
        nonlocal state
        state = _GateStates(_gates_to_json(call.project, _load_gates(call.project, since)), since)
        return True if state.changed else None

    if read() or not wait_s:
        state.retry_after_s = state.retry_after_s if state.changed else GATE_RETRY_AFTER_S
        return state
    try:
        while (remaining_s := until - time.monotonic()) > 0 and not listener.is_draining():
            if listener.watch_gates(
                since,
                read,
                min(remaining_s, _next_deadline_s(state.bodies)),
                lambda: state.versions,
            ):
                return state
    except listener.TooManyWaiters:
        state.retry_after_s = GATE_RETRY_AFTER_S
    if listener.is_draining():
        state.retry_after_s = GATE_RETRY_AFTER_S
    return state


def _next_deadline_s(bodies: Iterable[Mapping[str, Any]]) -> float:
    """Return the seconds until the next gate expires, which sends no notification."""
    ends = [
        body["permission_until_us"] or body["decide_by_us"]
        for body in bodies
        if body["status"] in OPEN_STATUSES
    ]
    return (
        max(0.0, (min(ends) - now_us()) / US_PER_SECOND) + 0.002 if ends else float(MAX_LONG_POLL_S)
    )


def _load_gates(project: UUID, gate_ids: Collection[UUID]) -> list[Gate]:
    """Load gates in the requested order. Problem 404 if one is not in the project."""
    rows: list[Gate] = _GATES_BY_ID.rows(project=project, gates=list(gate_ids)) if gate_ids else []
    gates = {gate.id: gate for gate in rows}
    for identity in gate_ids:
        if identity not in gates:
            raise build_not_found("gate", f"/gates/{identity}" if len(gate_ids) > 1 else None)
    return [gates[identity] for identity in gate_ids]


def _gates_by_id(project: UUID, gates: list[UUID]) -> "QuerySet[Gate]":
    return Gate.objects.filter(project=project, id__in=gates)


_GATES_BY_ID: Final = CompiledQuerySet(_gates_by_id, project=UUID, gates=[UUID])


def _gates_to_json(project: UUID, gates: list[Gate]) -> list[dict[str, Any]]:
    """Serialize gates for agents: the decision and its message, never the people."""
    now, live = now_us(), stops.load_stops(project) if gates else []
    messages, calls = _load_messages(gates), _load_calls(gates)
    written = load_comments(gates) if gates else {}
    return [
        _gate_to_json(gate, now, _is_stopped(live, gate), messages.get(gate.id))
        | calls[gate.effect_id]
        | {
            "comments": [
                {"at_us": comment.at_us, "text": comment.text}
                for comment in written.get(gate.id, ())
                if comment.text is not None
            ]
        }
        for gate in gates
    ]


def _load_calls(gates: Iterable[Gate]) -> dict[UUID, dict[str, str]]:
    """Load by which names the agent finds the calls of gates again. One query."""
    effects = {gate.effect_id for gate in gates}
    names = ("session__key", "effect_key", "call_id")
    rows = Effect.objects.filter(id__in=effects).values_list("id", *names) if effects else ()
    return {
        effect: {"session_key": session_key, "effect_key": effect_key}
        | ({"call_id": call_id} if call_id else {})
        for effect, session_key, effect_key, call_id in rows
    }


def _gate_to_json(gate: Gate, now: int, stopped: bool, message: str | None) -> dict[str, Any]:
    status = gates.current_gate_status(gate, now)
    reason = gate.reason if gate.reason in _SHOWN_REASONS else _REASON_BY_STATUS.get(status, status)
    body = {
        "id": str(gate.id),
        "handle": f"g_{gate.opened_position}",
        "effect": str(gate.effect_id),
        "session": str(gate.session_id),
        "page": f"/approvals/{gate.id}/",
        "tool": gate.tool,
        "status": status,
        "version": gate.version,
        "proceed": status == "approved" and not stopped,
        "stopped": stopped,
        "reason": reason,
        "risk": gate.risk,
        "requested_at_us": gate.requested_at_us,
        "decide_by_us": gate.decide_by_us,
        "permission_until_us": gate.permission_until_us,
    }
    return body if message is None else body | {"message": message}


def _is_stopped(live: Iterable[Stop], gate: Gate) -> bool:
    return (
        stops.find_covering_stop(live, gate.session_id, gate.agent_id, gate.tool, gate.effect_id)
        is not None
    )


def _load_messages(gates: Iterable[Gate]) -> dict[UUID, str]:
    """Load the latest message to the agent for denied or returned gates."""
    answers = {
        gate.id: _MESSAGE_ANSWERS[gate.status] for gate in gates if gate.status in _MESSAGE_ANSWERS
    }
    if not answers:
        return {}
    votes = (
        Vote.objects.filter(gate__in=answers)
        .order_by("position")
        .values_list("gate", "answer", "position")
    )
    positions = {gate: position for gate, answer, position in votes if answer in answers[gate]}
    bodies = dict(Body.objects.filter(entry__in=positions.values()).values_list("entry", "text"))
    return {
        gate: orjson.loads(bodies[vote_position]).get("reason", "")
        for gate, vote_position in positions.items()
        if vote_position in bodies
    }


def _status_condition(status: str, now: int) -> Q:
    """Return the condition for gates whose current status is `status`."""
    expired_conditions = {
        "expired": Q(status="pending", decide_by_us__lt=now),
        "expired_unused": Q(status="approved", permission_until_us__lt=now),
    }
    conditions: dict[str, Callable[[], Q]] = {
        "pending": lambda: Q(status="pending") & ~expired_conditions["expired"],
        "approved": lambda: Q(status="approved") & ~expired_conditions["expired_unused"],
        "expired": lambda: Q(status="expired") | expired_conditions["expired"],
        "expired_unused": lambda: Q(status="expired_unused") | expired_conditions["expired_unused"],
    }
    return conditions.get(status, lambda: Q(status=status))()


def _add_retry_after(response: HttpResponse, state: _GateStates) -> HttpResponse:
    if state.retry_after_s is not None:
        response["Retry-After"] = str(state.retry_after_s)
    return response
