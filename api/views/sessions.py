"""Endpoints for sessions."""

from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse

from api import writer_refusals
from api.endpoint import Call, build_json_response, dispatch_by_method, get_endpoint, post_command
from api.idempotency import Reply
from api.pagination import build_page, check_choice, parse_parameters
from api.preconditions import (
    check_preconditions,
    conflict_reply,
    lock_session_of_call,
    raise_if_repeated,
)
from api.problems import NOT_FOUND_TEXTS, Problem, build_not_found, check_meta
from api.schemas import core
from api.serializers.leases import lease_to_json
from api.writer_refusals import SESSION_ENDED_TEXT
from approvals.gates import cancel
from journal import sent_meta
from journal.entries import Origin
from sessions import leases, lookup, sessions
from sessions.models import ENDED, STATUSES, Session

_RELATED: Final = ("repository", "agent", "owner", "on_behalf_of")


@post_command(core.OpenSession, "session.started")
def open_session_endpoint(
    _call: Call, fields: core.OpenSession, origin: Origin, _path: dict[str, UUID]
) -> Reply:
    """Open a session, or return the session that has this key."""
    check_meta(fields.meta)
    values = {name: getattr(fields, name) for name in fields.__struct_fields__}
    try:
        session, created, agrees, described = sessions.open_session(origin, values)
    except sessions.UnknownOwner:
        detail = (
            "`owner` is not a member of the project. Omit it, or ask an administrator to add the"
            " person."
        )
        raise Problem(422, "owner_unknown", detail, pointer="/owner") from None
    except sessions.UnknownRequester:
        detail = (
            "`on_behalf_of` is not a member of the project. Omit it, or ask an administrator to"
            " add the person."
        )
        raise Problem(422, "on_behalf_of_unknown", detail, pointer="/on_behalf_of") from None
    except sessions.RequesterMismatch:
        detail = (
            "The parent or source session works on behalf of another person. Omit `on_behalf_of`."
        )
        raise Problem(422, "on_behalf_of_differs", detail, pointer="/on_behalf_of") from None
    except sessions.UnknownParentSession:
        raise Problem(
            422,
            "parent_unknown",
            "No session in this project has that id or key. Open the parent session first.",
            pointer="/parent",
        ) from None
    except sessions.UnknownSourceSession:
        detail = "No session in this project has that id or key. Branch from an existing session."
        raise Problem(422, "branched_from_unknown", detail, pointer="/branched_from") from None
    if not agrees:
        detail = (
            "This key belongs to a session with another description. Use that session, or another"
            " key."
        )
        problem = Problem(409, "SESSION_DIFFERS", detail)
        return Reply(
            409, problem.as_dict() | {"session": session_brief_to_json(session)}, kept=False
        )
    return Reply(201 if created else 200, session_brief_to_json(session), kept=created or described)


@post_command(core.EndSession, "session.ended")
def end_session(
    call: Call, fields: core.EndSession, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """End a session. Only the first end counts."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_session_preconditions(call, origin, session)) is not None:
        return refuse
    ended = sessions.close_session(origin, session, fields.status)
    cancel.cancel_gates_of_session(ended.id, call.received_us)
    leases.release_session_leases(ended.id, call.received_us)
    return Reply(200, session_brief_to_json(ended))


@get_endpoint
def get_session(call: Call, session: UUID) -> HttpResponse:
    """Return one session with its meta and its current lease; null if it was never leased."""
    row = require_session(call.project, session)
    lease = writer_refusals.load_fencing_lease(call.project, row.id)
    return build_json_response(
        200,
        session_to_json(row)
        | {
            "meta": sent_meta.load_session_meta(row.id),
            "lease": None if lease is None else lease_to_json(lease),
        },
    )


@get_endpoint
def list_sessions(call: Call) -> HttpResponse:
    """List sessions of the project, newest first."""
    params = parse_parameters(call.request, {"limit", "after", "status", "key"})
    rows = Session.objects.filter(project=call.project).select_related(*_RELATED)
    check_choice(params, "status", STATUSES)
    if "status" in params:
        rows = rows.filter(status=params["status"])
    if "key" in params:
        rows = rows.filter(key=params["key"])
    return build_json_response(200, build_page(rows, params, session_to_json))


sessions_endpoint = dispatch_by_method(POST=open_session_endpoint, GET=list_sessions)


def session_to_json(session: Session) -> dict[str, Any]:
    """Serialize a session."""
    return {
        **session_brief_to_json(session),
        "title": session.title,
        "repository": session.repository.name if session.repository else None,
        "branch": session.branch,
        "parent": str(session.parent_id) if session.parent_id else None,
        "branched_from": str(session.branched_from_id) if session.branched_from_id else None,
        "merge_into": str(session.merge_into_id) if session.merge_into_id else None,
        "merge_intent": session.merge_intent,
        "merged_into": str(session.merged_into_id) if session.merged_into_id else None,
        "cursor": session.cursor,
        "waiting_on": session.waiting_on,
        "mode": session.mode,
        "owner": session.owner.get_username() if session.owner else None,
        "on_behalf_of": session.on_behalf_of.get_username() if session.on_behalf_of else None,
        "labels": session.labels,
        "effects": session.effect_count,
        "resumes": session.resumes,
        "agent": session.agent.name,
        "created_at_us": session.created_at_us,
        "seen_at_us": session.seen_at_us,
        "ended_at_us": session.ended_at_us,
    }


def session_brief_to_json(session: Session) -> dict[str, Any]:
    return {
        "id": str(session.id),
        "handle": f"s_{session.opened_position}",
        "key": session.key,
        "status": session.status,
        "version": session.version,
    }


def require_session(project: UUID, identity: UUID) -> Session:
    session = Session.objects.select_related(*_RELATED).filter(project=project, id=identity).first()
    if session is None:
        raise build_not_found("session")
    return session


def check_session_preconditions(call: Call, origin: Origin, session: Session) -> Reply | None:
    """Return the refusal of a command that changes `session`, or None."""
    return check_preconditions(
        call, origin, session.version, lambda: {"session": session_brief_to_json(session)}
    )


@post_command(core.ChangeSession, "session.changed")
def change_session(
    call: Call, fields: core.ChangeSession, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Change an open session. Omitted fields keep their values."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_session_preconditions(call, origin, session)) is not None:
        return refuse
    if fields.waiting_on is not None and fields.status != "waiting":
        raise Problem(
            422,
            "not_waiting",
            "`waiting_on` requires status `waiting`. Send both.",
            pointer="/waiting_on",
        )
    if fields.status is not None and session.status in ENDED:
        shown = {"session": session_brief_to_json(session)}
        return conflict_reply("SESSION_ENDED", SESSION_ENDED_TEXT, origin, shown)
    sessions_by_reference = {}
    if fields.merge_into is not None:
        sessions_by_reference[fields.merge_into] = _find_other_session(
            session, fields.merge_into, "/merge_into"
        )
    values = {name: getattr(fields, name) for name in core.ChangeFields.__struct_fields__}
    return Reply(
        200,
        session_brief_to_json(
            sessions.update_session(origin, session, values, sessions_by_reference)
        ),
    )


@post_command(core.MergeSession, "session.merged")
def merge_session(
    call: Call, fields: core.MergeSession, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record that a branch was merged. Only the first merge counts."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_session_preconditions(call, origin, session)) is not None:
        return refuse
    into = _find_other_session(session, fields.into, "/into")
    if session.merged_into_id is not None:
        if session.merged_into_id == into:
            raise_if_repeated(origin)
            return Reply(
                200, session_brief_to_json(session) | {"merged_into": str(into)}, kept=False
            )
        current = {
            "session": session_brief_to_json(session) | {"merged_into": str(session.merged_into_id)}
        }
        return conflict_reply(
            "ALREADY_MERGED",
            "This session was already merged into another session. Read `merged_into`.",
            origin,
            current,
        )
    merged = sessions.record_session_merge(origin, session, into)
    return Reply(200, session_brief_to_json(merged) | {"merged_into": str(merged.merged_into_id)})


def _find_other_session(session: Session, reference: str, pointer: str) -> UUID:
    """Return the id of another session of the project by reference."""
    try:
        identity = lookup.load_session(session.project_id, reference).id
    except lookup.SessionNotFound:
        raise Problem(422, "session_unknown", NOT_FOUND_TEXTS["session"], pointer=pointer) from None
    if identity == session.id:
        raise Problem(
            422,
            "session_is_itself",
            "A session cannot merge into itself. Name another session.",
            pointer=pointer,
        )
    return identity
