"""Doors for leases, beats and claims: who works on what, under which epoch, and that they are still there."""

from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse, HttpResponseBase

from ingest import fencing, shapes_leases
from ingest.doors import (
    Call,
    as_json,
    authenticated,
    by_method,
    command,
    convert,
    guarded,
    read_object,
    reading,
    transact,
)
from ingest.paging import page, parameters
from ingest.problems import Problem
from ingest.reply import Reply
from sessions import beats, claims, fences, holders, leases, references, sessions, speakers
from sessions.fences import Stale
from sessions.holders import STATES, Beat, Heard, Held, Lost, Subject
from sessions.models import ENDED, Session, Task
from sessions.models_leases import KINDS
from sessions.origin import Origin
from sessions.speakers import Standing

COME_AGAIN_S: Final = 5


@command(shapes_leases.AcquireLease, "lease.acquired")
def acquire_lease(call: Call, fields: shapes_leases.AcquireLease, origin: Origin, _path: dict[str, UUID]) -> Reply:
    """Take a lease, or hear who holds it."""
    subject = _subject(call, fields)
    if subject.session is not None:
        standing = speakers.weigh(origin, subject.session, subject.task)
        if standing is Standing.OTHER_AGENT:  # a lease that another agent holds is answered with that lease
            speakers.refuse(origin, subject.session, "lease.acquired", standing, task=subject.task)
    try:
        lease, new = leases.acquire(
            origin, subject, process=fields.process, ttl_s=fields.ttl_s, takeover=fields.takeover
        )
    except Held as held:
        problem = Problem(409, "LEASE_HELD", str(Held.__doc__))
        return Reply(409, problem.as_dict() | {"lease": fencing.describe(held.lease)}, kept=False)
    except Lost as lost:
        return fencing.refused(lost.lease)
    return Reply(201 if new else 200, fencing.describe(lease), kept=False)


@command(shapes_leases.RenewLease, "lease.renewed", lease="lease")
def renew_lease(call: Call, fields: shapes_leases.RenewLease, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Keep a lease for another time of its length. Not journalled: it is a beat."""
    if fields.ttl_s is not None:
        leases.last(call.project, origin.agent, path["lease"], fields.epoch, fields.ttl_s)
    heard = beats.beat(
        call.project, origin.agent, [Beat(path["lease"], fields.epoch, fields.progress)], call.received_us
    )
    if not heard:
        return _lost(call, origin, path["lease"], fields.epoch, "lease.renewed")
    return Reply(200, fencing.describe(holders.of_project(call.project, path["lease"])), kept=False)


@command(shapes_leases.ReleaseLease, "lease.released", lease="lease")
def release_lease(call: Call, fields: shapes_leases.ReleaseLease, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Give a lease up; the next one to take it has a higher epoch."""
    _lock_session_of(call, path["lease"])
    try:
        return Reply(200, fencing.describe(leases.release(origin, path["lease"], fields.epoch)))
    except Lost:
        return _lost(call, origin, path["lease"], fields.epoch, "lease.released")


@reading
def get_lease(call: Call, lease: UUID) -> HttpResponse:
    """One lease."""
    parameters(call.request, set())
    try:
        return as_json(200, fencing.describe(holders.of_project(call.project, lease)))
    except LookupError:
        raise _no_lease() from None


@reading
def list_leases(call: Call) -> HttpResponse:
    """Leases of the project, the latest taken first."""
    asked = parameters(call.request, {"session", "kind", "state", "limit", "after"})
    rows = holders.read().filter(project=call.project)
    for name, known in (("kind", KINDS), ("state", STATES)):
        if name in asked and asked[name] not in known:
            raise Problem(422, "invalid", f"{name} is one of {', '.join(known)}.", pointer=f"/{name}")
    if "session" in asked:
        meant, _key = references.by_reference(call.project, [asked["session"]])[asked["session"]]
        rows = rows.filter(session=meant)
    if "kind" in asked:
        rows = rows.filter(kind=asked["kind"])
    if "state" in asked:
        rows = rows.filter(holders.in_state(asked["state"]))
    return as_json(200, page(rows, asked, fencing.describe))


@guarded("POST")
def post_beats(request: HttpRequest) -> HttpResponseBase:
    """Say that the holders of many leases are alive. No Idempotency-Key: a beat twice is a beat."""
    call = authenticated(request)
    asked = convert(read_object(request).value, shapes_leases.Beats)
    told = [Beat(UUID(one.lease), one.epoch, one.progress, one.quiet_s) for one in asked.beats]
    results: list[dict[str, Any]] = []

    def run() -> Reply:
        heard = beats.beat(call.project, call.token.agent, told, call.received_us)
        results[:] = [_heard(heard, one) for one in told]
        lost = {(one.lease, one.epoch) for one in told if (one.lease, one.epoch) not in heard}
        beats.tell_lost(call.project, call.token.agent, sorted(lost), call.received_us)
        return Reply(200, {"results": results})

    return as_json(200, transact(run, lambda: None).body)


def _heard(heard: dict[tuple[UUID, int], Heard], told: Beat) -> dict[str, Any]:
    one = heard.get((told.lease, told.epoch))
    if one is None:
        return {"lease": str(told.lease), "status": "lost", "expires_at_us": None}
    return {"lease": str(told.lease), "status": "ok", "expires_at_us": one.expires_at_us}


@command(shapes_leases.Claim, "lease.acquired")
def claim(call: Call, fields: shapes_leases.Claim, origin: Origin, _path: dict[str, UUID]) -> Reply:
    """The ready task or orphaned session that is most urgent and fits, under a lease; null when there is none now."""
    wish = claims.Wish(
        fields.process, tuple(fields.kinds or ("session", "task")), fields.repository, fields.labels, fields.ttl_s
    )
    try:
        claimed = claims.claim(origin, wish)
    except Lost as lost:
        return fencing.refused(lost.lease)
    if claimed is None:
        return Reply(200, {"claimed": None}, kept=False, headers={"Retry-After": str(COME_AGAIN_S)})
    what: dict[str, Any] = {"kind": claimed.kind, "session": str(claimed.session_id)}
    if claimed.task_id is not None:
        what["task"] = str(claimed.task_id)
    resume = f"/api/v1/sessions/{claimed.session_id}/resume"
    return Reply(200, {"claimed": what, "lease": fencing.describe(claimed), "resume": resume}, kept=False)


leases_door = by_method(POST=acquire_lease, GET=list_leases)


def _subject(call: Call, fields: shapes_leases.AcquireLease) -> Subject:
    """What is to be leased; the row of its session is locked. Problem 404 when the project has no such thing."""
    named = [name for name in ("session", "task", "resource") if getattr(fields, name) is not None]
    if len(named) != 1:
        detail = "Send exactly one of session, task and resource: what the lease is to be on."
        raise Problem(422, "invalid", detail, pointer="/session")
    if fields.resource is not None:
        return Subject("resource", fields.resource)
    if fields.task is not None:
        task = Task.objects.select_related("session").filter(project=call.project, id=UUID(fields.task)).first()
        if task is None:
            raise Problem(404, "not_found", "This project has no such task; create it first.")
        _refuse_ended(task.session.status)
        return holders.of_task(task)
    session = sessions.lock_meant(call.project, fields.session or "", call.received_us, new_effects=0)
    if session is None:
        raise Problem(404, "not_found", "This project has no such session; open it first with POST /sessions.")
    if not fields.to_compensate:
        _refuse_ended(Session.objects.values_list("status", flat=True).get(id=session), _TO_COMPENSATE)
    return holders.of_session(session)


_TO_COMPENSATE: Final = " To undo what was done there, take it with to_compensate."


def _refuse_ended(status: str, otherwise: str = "") -> None:
    if status in ENDED:
        detail = f"This session has ended, so there is nothing to hold; open one under another key.{otherwise}"
        raise Problem(409, "SESSION_ENDED", detail)


def _lock_session_of(call: Call, lease: UUID) -> None:
    """Lock the session first, then its lease: the order of every verb."""
    try:
        found = holders.of_project(call.project, lease)
    except LookupError:
        raise _no_lease() from None
    if found.session_id is not None:
        sessions.lock(call.project, found.session_id, call.received_us, new_effects=0)


def _lost(call: Call, origin: Origin, lease: UUID, epoch: int, kind: str) -> Reply:
    try:
        standing = holders.of_project(call.project, lease)
    except LookupError:
        raise _no_lease() from None
    fences.refuse(origin, standing.session_id, Stale(epoch, standing.epoch), kind=kind, subject=lease)
    return fencing.refused(standing)


def _no_lease() -> Problem:
    return Problem(404, "not_found", "This project has no such lease; acquire it first with POST /leases.")
