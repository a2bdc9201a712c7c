"""Endpoints for sessions and their tasks, and for resuming a session."""

from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse

from accounts.origin import Origin
from api import lease_conflicts
from api.endpoint import Call, build_json_response, dispatch_by_method, get_endpoint, post_command
from api.pagination import build_page, check_choice, parse_parameters
from api.preconditions import check_preconditions, lock_session_of_call
from api.problems import Problem, build_session_not_found, check_meta
from api.reply import Reply
from api.schemas import core
from api.schemas.working_state import FinishTask
from api.serializers.leases import lease_to_json
from approvals.gates import cancel
from db.clock import now_us
from journal import sent_meta
from recovery import detectors, resume, resume_json
from sessions import items, leases, sessions, tasks
from sessions.models import ITEM_STATES, STATUSES, Session, Task

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
            422, "parent_unknown", str(sessions.UnknownParentSession.__doc__), pointer="/parent"
        ) from None
    except sessions.UnknownSourceSession:
        detail = str(sessions.UnknownSourceSession.__doc__)
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
    lease = lease_conflicts.load_fencing_lease(call.project, row.id)
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


@post_command(core.CreateTask, "task.created")
def create_task(
    call: Call, fields: core.CreateTask, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Create a task of a session, or return the task that has this key."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_preconditions(call, origin)) is not None:
        return refuse
    values = {name: getattr(fields, name) for name in fields.__struct_fields__}
    try:
        task, created = tasks.add_task(origin, session, values)
    except tasks.UnknownParentTask:
        raise Problem(
            422, "parent_unknown", str(tasks.UnknownParentTask.__doc__), pointer="/parent"
        ) from None
    except tasks.TaskCycle:
        raise Problem(
            422, "parent_is_below", str(tasks.TaskCycle.__doc__), pointer="/parent"
        ) from None
    return Reply(201 if created else 200, _task_brief(task), kept=created)


@post_command(core.ChangeTask, "task.changed")
def change_task(
    call: Call, fields: core.ChangeTask, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Change a task. Omitted fields keep their values."""
    task = _lock_task(call, path["task"])
    if (refuse := _check_task_preconditions(call, origin, task)) is not None:
        return refuse
    values = {name: getattr(fields, name) for name in fields.__struct_fields__}
    return Reply(200, _task_result(tasks.update_task(origin, task, values)))


@post_command(FinishTask, "task.done")
def finish_task(call: Call, _fields: FinishTask, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Mark a task as done. The response counts its open subtasks and items."""
    task = _lock_task(call, path["task"])
    if (refuse := _check_task_preconditions(call, origin, task)) is not None:
        return refuse
    return Reply(200, _task_result(tasks.complete_task(origin, task)))


def _task_result(task: Task) -> dict[str, Any]:
    """Serialize a changed task; count open subtasks and items if it is done."""
    if task.state != "done":
        return _task_brief(task)
    detectors.check_session_controls(task.session_id, task.updated_at_us)
    return _task_brief(task) | {
        "open_tasks": tasks.count_open_subtasks(task),
        "open_items": items.count_open_items(task),
    }


@get_endpoint
def list_tasks(call: Call, session: UUID) -> HttpResponse:
    """List the tasks of a session, newest first."""
    params = parse_parameters(call.request, {"limit", "after"})
    return build_json_response(
        200, build_page(require_session(call.project, session).tasks.all(), params, _task_to_json)
    )


@post_command(core.PutItems, "task.changed")
def put_items(call: Call, fields: core.PutItems, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Set the state of items of a task: pending, done or failed."""
    task = _lock_task(call, path["task"])
    if (refuse := _check_task_preconditions(call, origin, task)) is not None:
        return refuse
    try:
        counts = items.set_item_states(
            origin, task, {item.key: item.state for item in fields.items}
        )
    except items.TooManyItems:
        raise Problem(
            422, "too_many_items", str(items.TooManyItems.__doc__), pointer="/items"
        ) from None
    return Reply(
        200,
        {
            "task": str(task.id),
            **counts,
            "version": tasks.bump_task_version(task, origin.received_us),
        },
    )


@get_endpoint
def list_items(call: Call, task: UUID) -> HttpResponse:
    """List the first 10,000 items of a task, with counts of all per state."""
    params = parse_parameters(call.request, {"state"})
    check_choice(params, "state", ITEM_STATES)
    stored = _find_task(call.project, task)
    rows = stored.items.filter(**params).order_by("key").values("key", "state", "changed_at_us")
    return build_json_response(
        200,
        {
            "items": list(rows[: items.MAX_TASK_ITEMS]),
            **items.count_items_by_state([stored.id])[stored.id],
        },
    )


sessions_endpoint = dispatch_by_method(POST=open_session_endpoint, GET=list_sessions)
tasks_endpoint = dispatch_by_method(POST=create_task, GET=list_tasks)
items_endpoint = dispatch_by_method(POST=put_items, GET=list_items)


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


def _task_brief(task: Task) -> dict[str, Any]:
    return {
        "id": str(task.id),
        "handle": f"t_{task.opened_position}",
        "key": task.key,
        "state": task.state,
        "version": task.version,
    }


_TASK_FIELDS: Final = (
    "title",
    "priority",
    "worker",
    "branch_label",
    "created_at_us",
    "updated_at_us",
    "done_at_us",
)


def _task_to_json(task: Task) -> dict[str, Any]:
    parent = {"parent": str(task.parent_id) if task.parent_id else None}
    return _task_brief(task) | parent | {name: getattr(task, name) for name in _TASK_FIELDS}


def require_session(project: UUID, identity: UUID) -> Session:
    session = Session.objects.select_related(*_RELATED).filter(project=project, id=identity).first()
    if session is None:
        raise build_session_not_found()
    return session


def check_session_preconditions(call: Call, origin: Origin, session: Session) -> Reply | None:
    """Return the refusal of a command that changes `session`, or None."""
    return check_preconditions(
        call, origin, session.version, lambda: {"session": session_brief_to_json(session)}
    )


def _check_task_preconditions(call: Call, origin: Origin, task: Task) -> Reply | None:
    return check_preconditions(call, origin, task.version, lambda: {"task": _task_brief(task)})


def _find_task(project: UUID, identity: UUID) -> Task:
    task = Task.objects.filter(project=project, id=identity).first()
    if task is None:
        raise Problem(404, "not_found", "The project has no such task. Create it first.")
    return task


def _lock_task(call: Call, identity: UUID) -> Task:
    lock_session_of_call(call, _find_task(call.project, identity).session_id)
    call.task = identity
    return _find_task(call.project, identity)  # read again after the lock


MAX_PROCESS_CHARACTERS = 64


@get_endpoint
def get_resume(call: Call, session: UUID) -> HttpResponse:
    """Return whether the session can be resumed safely, and its state, at most 32 KiB.

    Changes nothing. `process` is the worker's name; while another worker's lease is active, the
    controls tell it to wait. `safe` and `because` describe the state after that lease has ended.
    """
    params = parse_parameters(call.request, {"process"})
    process = params.get("process")
    if process is not None and len(process) > MAX_PROCESS_CHARACTERS:
        detail = (
            "`process` is too long. Send the name used for the lease or dispatch, at most"
            f" {MAX_PROCESS_CHARACTERS} characters."
        )
        raise Problem(422, "invalid", detail, pointer="/process")
    row = Session.objects.select_related("agent").filter(project=call.project, id=session).first()
    if row is None:
        raise build_session_not_found()
    context = resume.load_resume_context(row, now_us(), process=process, agent=call.token.agent)
    state = resume.decide_resume(context)
    response = HttpResponse(resume_json.resume_to_json(state), content_type="application/json")
    response["Content-Length"] = str(len(response.content))
    response["Cache-Control"] = "no-store"
    return response
