"""Doors for those who wait for people: reading gates, waiting for rulings, withdrawing a request.

No token rules, revokes, holds or changes policy: there is no door for it here.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from approvals import cancelling, deadlines, waker
from approvals.models import Gate, Vote
from approvals.states import OPEN, STATUSES
from ingest import shapes
from ingest.doors import Call, as_json, authenticated, command, convert, guarded, read_object, reading
from ingest.guards import enter, refusal
from ingest.paging import page, parameters, whole_number
from ingest.paths import resolve
from ingest.problems import Problem
from ingest.reply import Reply
from journal.clock import now_us
from journal.compiled import Compiled
from journal.models import Body
from ledger import holds
from ledger.models_holds import Hold
from sessions import references
from sessions.origin import Origin

LONGEST_WAIT_S: Final = 55
COME_AGAIN_S: Final = 1  # when there was no room to wait, or no wait was asked for
HELD_FOR_S: Final = 5  # a hold has no end that could be waited for, so whoever is held asks now and then
US: Final = 1_000_000

# What a gate says when its status alone says why; a reason stored with it goes first.
_REASON: Final = {
    "pending": "not_resolved",
    "approved": None,
    "used": "already_used",
}
_STORED_IS_SHOWN: Final = (
    *("digest_mismatch", "precondition_changed", "requirement_changed", "quorum_lost"),
    *("by_agent", "session_ended", "superseded", "bypassed", "happened", "denied_final"),
)
_WITH_WORDS: Final = {"denied": ("deny",), "denied_final": ("deny_final",), "returned": ("return",)}


@guarded("GET", "HEAD")
def get_gate(request: HttpRequest, gate: UUID | str) -> HttpResponseBase:
    """One gate, at once or as soon as it is newer than `since`."""
    call = authenticated(request)
    asked = parameters(request, {"wait", "since"})
    since = {resolve(call.project, {"gate": gate})["gate"]: whole_number(asked, "since", -1, 2**31 - 1, least=0)}
    told = _watched(call, since, whole_number(asked, "wait", 0, LONGEST_WAIT_S, least=0))
    (body,) = told.bodies
    tag = f'"{body["version"]}-{body["status"]}{"-held" if body["held"] else ""}"'
    known = tag in request.META.get("HTTP_IF_NONE_MATCH", "")
    response = HttpResponse(status=304) if known else as_json(200, body)
    response["ETag"] = tag
    return _come_again(response, told)


@guarded("POST")
def wait_for_gates(request: HttpRequest) -> HttpResponseBase:
    """Many gates at once; answers as soon as one of them is newer than the version sent with it."""
    call = authenticated(request)
    asked = convert(read_object(request).value, shapes.WaitForGates)
    told = _watched(call, {UUID(gate): since for gate, since in asked.gates.items()}, asked.wait)
    return _come_again(as_json(200, {"gates": told.bodies, "changed": told.changed}), told)


@command(shapes.CancelGate, "gate.cancelled", gate="gate")
def cancel_gate(call: Call, fields: shapes.CancelGate, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Withdraw a request; a gate that has ended stays as it is."""
    asked = cancelling.find(origin, path["gate"])
    if asked is None:
        raise _no_gate()
    if fields.lease_epoch is not None:
        enter(call, asked.session_id)
        call.task = asked.effect.task_id
        if (refuse := refusal(call, origin, speaks=False)) is not None:  # it was found, so who asks may speak
            return refuse
    found = cancelling.cancel(origin, asked)
    (body,) = _bodies(call.project, [found])
    return Reply(200, body)


@reading
def list_gates(call: Call) -> HttpResponse:
    """Gates of the project, newest first."""
    asked = parameters(call.request, {"session", "status", "limit", "after"})
    rows = Gate.objects.filter(project=call.project)
    if "status" in asked:
        if asked["status"] not in STATUSES:
            raise Problem(422, "invalid", f"status is one of {', '.join(STATUSES)}.", pointer="/status")
        rows = rows.filter(_has_status(asked["status"], now_us()))
    if "session" in asked:
        meant, _key = references.by_reference(call.project, [asked["session"]])[asked["session"]]
        rows = rows.filter(session=meant)
    found = page(rows, asked, lambda gate: gate)
    return as_json(200, found | {"items": _bodies(call.project, found["items"])})


class _Told:
    """What is to be answered about some gates: their bodies, which of them are news, and when to ask again."""

    def __init__(self, bodies: list[dict[str, Any]], since: Mapping[UUID, int]) -> None:
        self.bodies = bodies
        self.changed = [body["id"] for body in bodies if _is_news(body, since[UUID(body["id"])])]
        self.versions = {UUID(body["id"]): body["version"] for body in bodies}
        self.again_s: int | None = 0
        if any(body["held"] for body in bodies):
            self.again_s = HELD_FOR_S
        elif all(body["status"] not in OPEN for body in bodies):
            self.again_s = None


def _is_news(body: Mapping[str, Any], since: int) -> bool:
    """True when whoever knows version `since` should hear; -1 asks for the answer of the people, not for a change."""
    if body["held"] or body["status"] not in OPEN:
        return True
    return bool(body["status"] != "pending" if since < 0 else body["version"] > since)


def _watched(call: Call, since: Mapping[UUID, int], wait_s: int) -> _Told:
    """Wait until one of the gates is news, at most `wait_s`; then tell of all of them."""
    until = time.monotonic() + wait_s
    told = _Told([], since)

    def read() -> bool | None:
        nonlocal told
        told = _Told(_bodies(call.project, _found(call.project, since)), since)
        return True if told.changed else None

    if read() or not wait_s:
        told.again_s = told.again_s if told.changed else COME_AGAIN_S
        return told
    try:
        while (left := until - time.monotonic()) > 0 and not waker.draining():
            if waker.watch(since, read, min(left, _next_deadline_s(told.bodies)), lambda: told.versions):
                return told
    except waker.Full:
        told.again_s = COME_AGAIN_S
    if waker.draining():
        told.again_s = COME_AGAIN_S
    return told


def _next_deadline_s(bodies: Iterable[Mapping[str, Any]]) -> float:
    """Seconds until the clock alone decides one of the gates; no ruling tells of that."""
    ends = [body["leave_until_us"] or body["decide_by_us"] for body in bodies if body["status"] in OPEN]
    return max(0.0, (min(ends) - now_us()) / US) + 0.002 if ends else float(LONGEST_WAIT_S)


def _found(project: UUID, wanted: Collection[UUID]) -> list[Gate]:
    """The gates in the order asked for. Problem 404 when one is not the project's."""
    rows: list[Gate] = _ASKED.rows(project=project, gates=list(wanted)) if wanted else []
    known = {gate.id: gate for gate in rows}
    for identity in wanted:
        if identity not in known:
            raise _no_gate(f"/gates/{identity}" if len(wanted) > 1 else None)
    return [known[identity] for identity in wanted]


def _asked(project: UUID, gates: list[UUID]) -> "QuerySet[Gate]":
    return Gate.objects.filter(project=project, id__in=gates)


_ASKED: Final = Compiled(_asked, project=UUID, gates=[UUID])


def _bodies(project: UUID, found: list[Gate]) -> list[dict[str, Any]]:
    """Gates as agents see them: never who decided, only what, and the words meant for the agent."""
    now, live = now_us(), holds.live(project) if found else []
    words = _words(found)
    return [_body(gate, now, _held(live, gate), words.get(gate.id)) for gate in found]


def _body(gate: Gate, now: int, held: bool, words: str | None) -> dict[str, Any]:
    status = deadlines.current_status(gate, now)
    reason = gate.reason if gate.reason in _STORED_IS_SHOWN else _REASON.get(status, status)
    body = {
        "id": str(gate.id),
        "handle": f"g_{gate.opened_position}",
        "effect": str(gate.effect_id),
        "session": str(gate.session_id),
        "tool": gate.tool,
        "status": status,
        "version": gate.version,
        "proceed": status == "approved" and not held,
        "held": held,
        "reason": reason,
        "risk": gate.risk,
        "requested_at_us": gate.requested_at_us,
        "decide_by_us": gate.decide_by_us,
        "leave_until_us": gate.leave_until_us,
    }
    return body if words is None else body | {"message": words}


def _held(live: Iterable[Hold], gate: Gate) -> bool:
    return holds.covering(live, gate.session_id, gate.agent_id, gate.tool, gate.effect_id) is not None


def _words(found: Iterable[Gate]) -> dict[UUID, str]:
    """What the person who denied or returned a gate wrote to the agent, by gate; the latest such word."""
    said = {gate.id: _WITH_WORDS[gate.status] for gate in found if gate.status in _WITH_WORDS}
    if not said:
        return {}
    votes = Vote.objects.filter(gate__in=said).order_by("position").values_list("gate", "answer", "position")
    places = {gate: position for gate, answer, position in votes if answer in said[gate]}
    bodies = dict(Body.objects.filter(entry__in=places.values()).values_list("entry", "text"))
    return {gate: orjson.loads(bodies[place]).get("reason", "") for gate, place in places.items() if place in bodies}


def _has_status(status: str, now: int) -> Q:
    """The rows whose status as of now is `status`."""
    late = {
        "expired": Q(status="pending", decide_by_us__lt=now),
        "lapsed": Q(status="approved", leave_until_us__lt=now),
    }
    passed: dict[str, Callable[[], Q]] = {
        "pending": lambda: Q(status="pending") & ~late["expired"],
        "approved": lambda: Q(status="approved") & ~late["lapsed"],
        "expired": lambda: Q(status="expired") | late["expired"],
        "lapsed": lambda: Q(status="lapsed") | late["lapsed"],
    }
    return passed.get(status, lambda: Q(status=status))()


def _come_again(response: HttpResponse, told: _Told) -> HttpResponse:
    if told.again_s is not None:
        response["Retry-After"] = str(told.again_s)
    return response


def _no_gate(pointer: str | None = None) -> Problem:
    detail = "This project has no such gate; a plan's answer names the gate it waits for."
    return Problem(404, "not_found", detail, pointer=pointer)
