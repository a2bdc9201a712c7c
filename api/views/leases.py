"""Endpoints for leases."""

from typing import Final
from uuid import UUID

from django.http import HttpResponse

from api import writer_refusals
from api.endpoint import (
    Call,
    build_json_response,
    dispatch_by_method,
    get_endpoint,
    post_command,
)
from api.idempotency import Reply
from api.pagination import build_page, check_choice, parse_parameters
from api.problems import Problem, build_not_found
from api.schemas import leases
from api.serializers.leases import lease_to_json
from api.writer_refusals import SESSION_ENDED_TEXT
from journal.entries import Origin
from sessions import heartbeats as sessions_heartbeats
from sessions import lease_queries, lookup, sessions, writers
from sessions import leases as sessions_leases
from sessions.lease_queries import (
    LEASE_STATES,
    Heartbeat,
    LeaseHeld,
    LeaseLost,
    LeaseSubject,
)
from sessions.models import ENDED, LEASE_KINDS, Session, Task
from sessions.writers import StaleEpoch, WriterStatus


@post_command(leases.AcquireLease, "lease.acquired")
def acquire_lease(
    call: Call, fields: leases.AcquireLease, origin: Origin, _path: dict[str, UUID]
) -> Reply:
    """Acquire a lease, or return 409 with the current lease."""
    subject = _load_subject(call, fields)
    if subject.session is not None:
        standing = writers.load_writer_status(origin, subject.session, subject.task)
        # A lease held by another agent is answered with LEASE_HELD below.
        if standing is WriterStatus.OTHER_AGENT:
            writers.reject_writer(
                origin, subject.session, "lease.acquired", standing, task=subject.task
            )
    try:
        lease, is_new = sessions_leases.acquire_or_renew_lease(
            origin, subject, process=fields.process, ttl_s=fields.ttl_s, takeover=fields.takeover
        )
    except LeaseHeld as held:
        problem = Problem(
            409,
            "LEASE_HELD",
            "Another process holds this lease. Wait until it expires, or do other work.",
        )
        return Reply(
            409,
            problem.as_dict() | {"lease": lease_to_json(held.lease)},
            kept=False,
        )
    except LeaseLost as lost:
        return writer_refusals.build_lease_lost(lost.lease)
    return Reply(201 if is_new else 200, lease_to_json(lease), kept=False)


@post_command(leases.RenewLease, "lease.renewed", lease="lease")
def renew_lease(
    call: Call, fields: leases.RenewLease, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Extend a lease by its time to live. A heartbeat, so it is not in the journal."""
    if fields.ttl_s is not None:
        sessions_leases.set_lease_ttl(
            call.project, origin.agent, path["lease"], fields.epoch, fields.ttl_s
        )
    accepted = sessions_heartbeats.record_heartbeats(
        call.project,
        origin.agent,
        [Heartbeat(path["lease"], fields.epoch, fields.progress)],
        call.received_us,
    )
    if not accepted:
        return _refuse_stale(call, origin, path["lease"], fields.epoch, "lease.renewed")
    return Reply(
        200,
        lease_to_json(lease_queries.load_lease(call.project, path["lease"])),
        kept=False,
    )


@post_command(leases.ReleaseLease, "lease.released", lease="lease")
def release_lease(
    call: Call, fields: leases.ReleaseLease, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Release a lease. The next holder gets a higher epoch."""
    _lock_session_of(call, path["lease"])
    try:
        return Reply(
            200,
            lease_to_json(sessions_leases.release_own_lease(origin, path["lease"], fields.epoch)),
        )
    except LeaseLost:
        return _refuse_stale(call, origin, path["lease"], fields.epoch, "lease.released")


@get_endpoint
def get_lease(call: Call, lease: UUID) -> HttpResponse:
    """Return one lease."""
    parse_parameters(call.request, set())
    try:
        return build_json_response(
            200, lease_to_json(lease_queries.load_lease(call.project, lease))
        )
    except LookupError:
        raise build_not_found("lease") from None


@get_endpoint
def list_leases(call: Call) -> HttpResponse:
    """List leases of the project, the most recently acquired first."""
    params = parse_parameters(call.request, {"session", "kind", "state", "limit", "after"})
    rows = lease_queries.query_leases().filter(project=call.project)
    check_choice(params, "kind", LEASE_KINDS)
    check_choice(params, "state", LEASE_STATES)
    if "session" in params:
        rows = rows.filter(session=lookup.resolve_session_id(call.project, params["session"]))
    if "kind" in params:
        rows = rows.filter(kind=params["kind"])
    if "state" in params:
        rows = rows.filter(lease_queries.build_lease_state_filter(params["state"]))
    return build_json_response(200, build_page(rows, params, lease_to_json))


leases_endpoint = dispatch_by_method(POST=acquire_lease, GET=list_leases)


def _load_subject(call: Call, fields: leases.AcquireLease) -> LeaseSubject:
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
        return LeaseSubject("resource", fields.resource)
    if fields.task is not None:
        task = (
            Task.objects.select_related("session")
            .filter(project=call.project, id=UUID(fields.task))
            .first()
        )
        if task is None:
            raise build_not_found("task")
        _refuse_ended(task.session.status)
        return lease_queries.task_as_lease_subject(task)
    session = sessions.lock_session_by_reference(
        call.project, fields.session or "", call.received_us, new_effects=0
    )
    if session is None:
        raise build_not_found("session")
    if not fields.to_compensate:
        _refuse_ended(
            Session.objects.values_list("status", flat=True).get(id=session), _COMPENSATE_HINT
        )
    return lease_queries.session_as_lease_subject(session)


_COMPENSATE_HINT: Final = " To compensate its effects, send `to_compensate`."


def _refuse_ended(status: str, otherwise: str = "") -> None:
    if status in ENDED:
        raise Problem(409, "SESSION_ENDED", f"{SESSION_ENDED_TEXT}{otherwise}")


def _lock_session_of(call: Call, lease: UUID) -> None:
    """Lock the session before its lease, the lock order of all commands."""
    try:
        row = lease_queries.load_lease(call.project, lease)
    except LookupError:
        raise build_not_found("lease") from None
    if row.session_id is not None:
        sessions.lock_session_row(call.project, row.session_id, call.received_us, new_effects=0)


def _refuse_stale(call: Call, origin: Origin, lease: UUID, epoch: int, kind: str) -> Reply:
    try:
        current = lease_queries.load_lease(call.project, lease)
    except LookupError:
        raise build_not_found("lease") from None
    writers.record_fenced_command(
        origin, current.session_id, StaleEpoch(epoch, current.epoch), kind=kind, subject=lease
    )
    return writer_refusals.build_lease_lost(current)
