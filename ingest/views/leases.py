"""Endpoints for leases, heartbeats and claims."""

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
def acquire_lease(
    call: Call, fields: shapes_leases.AcquireLease, origin: Origin, _path: dict[str, UUID]
) -> Reply:
    """Acquire a lease, or return 409 with the current lease."""
    subject = _load_subject(call, fields)
    if subject.session is not None:
        standing = speakers.weigh(origin, subject.session, subject.task)
        # A lease held by another agent is answered with LEASE_HELD below.
        if standing is Standing.OTHER_AGENT:
            speakers.refuse(origin, subject.session, "lease.acquired", standing, task=subject.task)
    try:
        lease, is_new = leases.acquire(
            origin, subject, process=fields.process, ttl_s=fields.ttl_s, takeover=fields.takeover
        )
    except Held as held:
        problem = Problem(409, "LEASE_HELD", str(Held.__doc__))
        return Reply(409, problem.as_dict() | {"lease": fencing.describe(held.lease)}, kept=False)
    except Lost as lost:
        return fencing.refused(lost.lease)
    return Reply(201 if is_new else 200, fencing.describe(lease), kept=False)


@command(shapes_leases.RenewLease, "lease.renewed", lease="lease")
def renew_lease(
    call: Call, fields: shapes_leases.RenewLease, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Extend a lease by its time to live. A heartbeat, so it is not in the journal."""
    if fields.ttl_s is not None:
        leases.last(call.project, origin.agent, path["lease"], fields.epoch, fields.ttl_s)
    accepted = beats.beat(
        call.project,
        origin.agent,
        [Beat(path["lease"], fields.epoch, fields.progress)],
        call.received_us,
    )
    if not accepted:
        return _refuse_stale(call, origin, path["lease"], fields.epoch, "lease.renewed")
    return Reply(200, fencing.describe(holders.of_project(call.project, path["lease"])), kept=False)


@command(shapes_leases.ReleaseLease, "lease.released", lease="lease")
def release_lease(
    call: Call, fields: shapes_leases.ReleaseLease, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Release a lease. The next holder gets a higher epoch."""
    _lock_session_of(call, path["lease"])
    try:
        return Reply(200, fencing.describe(leases.release(origin, path["lease"], fields.epoch)))
    except Lost:
        return _refuse_stale(call, origin, path["lease"], fields.epoch, "lease.released")


@reading
def get_lease(call: Call, lease: UUID) -> HttpResponse:
    """Return one lease."""
    parameters(call.request, set())
    try:
        return as_json(200, fencing.describe(holders.of_project(call.project, lease)))
    except LookupError:
        raise _lease_not_found() from None


@reading
def list_leases(call: Call) -> HttpResponse:
    """List leases of the project, the most recently acquired first."""
    params = parameters(call.request, {"session", "kind", "state", "limit", "after"})
    rows = holders.read().filter(project=call.project)
    for name, values in (("kind", KINDS), ("state", STATES)):
        if name in params and params[name] not in values:
            raise Problem(
                422,
                "invalid",
                f"`{name}` is invalid. Send one of {', '.join(values)}.",
                pointer=f"/{name}",
            )
    if "session" in params:
        session, _key = references.by_reference(call.project, [params["session"]])[
            params["session"]
        ]
        rows = rows.filter(session=session)
    if "kind" in params:
        rows = rows.filter(kind=params["kind"])
    if "state" in params:
        rows = rows.filter(holders.in_state(params["state"]))
    return as_json(200, page(rows, params, fencing.describe))


@guarded("POST")
def post_beats(request: HttpRequest) -> HttpResponseBase:
    """Record heartbeats of several leases. Repeatable, so no Idempotency-Key."""
    call = authenticated(request)
    fields = convert(read_object(request).value, shapes_leases.Beats)
    heartbeats = [
        Beat(UUID(heartbeat.lease), heartbeat.epoch, heartbeat.progress, heartbeat.quiet_s)
        for heartbeat in fields.beats
    ]
    results: list[dict[str, Any]] = []

    def run() -> Reply:
        accepted = beats.beat(call.project, call.token.agent, heartbeats, call.received_us)
        results[:] = [_heartbeat_to_json(accepted, heartbeat) for heartbeat in heartbeats]
        lost = {
            (heartbeat.lease, heartbeat.epoch)
            for heartbeat in heartbeats
            if (heartbeat.lease, heartbeat.epoch) not in accepted
        }
        beats.tell_lost(call.project, call.token.agent, sorted(lost), call.received_us)
        return Reply(200, {"results": results})

    return as_json(200, transact(run, lambda: None).body)


def _heartbeat_to_json(accepted: dict[tuple[UUID, int], Heard], heartbeat: Beat) -> dict[str, Any]:
    lease = accepted.get((heartbeat.lease, heartbeat.epoch))
    if lease is None:
        return {"lease": str(heartbeat.lease), "status": "lost", "expires_at_us": None}
    return {"lease": str(heartbeat.lease), "status": "ok", "expires_at_us": lease.expires_at_us}


@command(shapes_leases.Claim, "lease.acquired")
def claim(call: Call, fields: shapes_leases.Claim, origin: Origin, _path: dict[str, UUID]) -> Reply:
    """Lease the most urgent matching ready task or orphaned session, if any."""
    criteria = claims.Wish(
        fields.process,
        tuple(fields.kinds or ("session", "task")),
        fields.repository,
        fields.labels,
        fields.ttl_s,
    )
    try:
        lease = claims.claim(origin, criteria)
    except Lost as lost:
        return fencing.refused(lost.lease)
    if lease is None:
        return Reply(200, {"claimed": None}, kept=False, headers={"Retry-After": str(COME_AGAIN_S)})
    claimed_work: dict[str, Any] = {"kind": lease.kind, "session": str(lease.session_id)}
    if lease.task_id is not None:
        claimed_work["task"] = str(lease.task_id)
    resume = f"/api/v1/sessions/{lease.session_id}/resume"
    return Reply(
        200,
        {"claimed": claimed_work, "lease": fencing.describe(lease), "resume": resume},
        kept=False,
    )


leases_door = by_method(POST=acquire_lease, GET=list_leases)


def _load_subject(call: Call, fields: shapes_leases.AcquireLease) -> Subject:
    """Return the subject of the lease and lock its session. Problem 404."""
    subject_fields = [
        name for name in ("session", "task", "resource") if getattr(fields, name) is not None
    ]
    if len(subject_fields) != 1:
        detail = (
            "The subject of the lease is ambiguous or missing. Send exactly one of `session`,"
            " `task` and `resource`."
        )
        raise Problem(422, "invalid", detail, pointer="/session")
    if fields.resource is not None:
        return Subject("resource", fields.resource)
    if fields.task is not None:
        task = (
            Task.objects.select_related("session")
            .filter(project=call.project, id=UUID(fields.task))
            .first()
        )
        if task is None:
            raise Problem(404, "not_found", "The project has no such task. Create it first.")
        _refuse_ended(task.session.status)
        return holders.of_task(task)
    session = sessions.lock_meant(
        call.project, fields.session or "", call.received_us, new_effects=0
    )
    if session is None:
        raise Problem(
            404, "not_found", "The project has no such session. Open it first with POST /sessions."
        )
    if not fields.to_compensate:
        _refuse_ended(
            Session.objects.values_list("status", flat=True).get(id=session), _COMPENSATE_HINT
        )
    return holders.of_session(session)


_COMPENSATE_HINT: Final = " To compensate its effects, send `to_compensate`."


def _refuse_ended(status: str, otherwise: str = "") -> None:
    if status in ENDED:
        detail = f"The session has ended. Open a session with another key.{otherwise}"
        raise Problem(409, "SESSION_ENDED", detail)


def _lock_session_of(call: Call, lease: UUID) -> None:
    """Lock the session before its lease, the lock order of all commands."""
    try:
        row = holders.of_project(call.project, lease)
    except LookupError:
        raise _lease_not_found() from None
    if row.session_id is not None:
        sessions.lock(call.project, row.session_id, call.received_us, new_effects=0)


def _refuse_stale(call: Call, origin: Origin, lease: UUID, epoch: int, kind: str) -> Reply:
    try:
        current = holders.of_project(call.project, lease)
    except LookupError:
        raise _lease_not_found() from None
    fences.refuse(origin, current.session_id, Stale(epoch, current.epoch), kind=kind, subject=lease)
    return fencing.refused(current)


def _lease_not_found() -> Problem:
    return Problem(
        404, "not_found", "The project has no such lease. Acquire it first with POST /leases."
    )
