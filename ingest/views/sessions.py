"""Endpoints for sessions, their tasks and the items of a task."""

from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse

from approvals import cancelling
from ingest import fencing, shapes
from ingest.doors import Call, as_json, by_method, command, reading
from ingest.guards import enter, refusal
from ingest.paging import page, parameters
from ingest.problems import Problem
from ingest.reply import Reply
from ingest.shapes_work import FinishTask
from inquiry import controls
from sessions import items, leases, sessions, tasks
from sessions.models import ITEM_STATES, STATUSES, Session, Task
from sessions.origin import Origin

_RELATED: Final = ("repository", "agent", "owner", "on_behalf_of")


@command(shapes.OpenSession, "session.started")
def open_session(
    _call: Call, fields: shapes.OpenSession, origin: Origin, _path: dict[str, UUID]
) -> Reply:
    """Open a session, or return the session that has this key."""
    values = {name: getattr(fields, name) for name in fields.__struct_fields__}
    try:
        session, created, agrees, labelled = sessions.open_session(origin, values)
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
    except sessions.AnotherRequester:
        detail = (
            "The parent or source session works on behalf of another person. Omit `on_behalf_of`."
        )
        raise Problem(422, "on_behalf_of_differs", detail, pointer="/on_behalf_of") from None
    except sessions.UnknownParent:
        raise Problem(
            422, "parent_unknown", str(sessions.UnknownParent.__doc__), pointer="/parent"
        ) from None
    except sessions.UnknownBranch:
        detail = str(sessions.UnknownBranch.__doc__)
        raise Problem(422, "branched_from_unknown", detail, pointer="/branched_from") from None
    if not agrees:
        detail = (
            "This key belongs to a session with another description. Use that session, or another"
            " key."
        )
        problem = Problem(409, "SESSION_DIFFERS", detail)
        return Reply(409, problem.as_dict() | {"session": brief(session)}, kept=False)
    return Reply(201 if created else 200, brief(session), kept=created or labelled)


@command(shapes.EndSession, "session.ended")
def end_session(
    call: Call, fields: shapes.EndSession, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """End a session. Only the first end counts."""
    session = enter(call, path["session"])
    if (
        refuse := refusal(call, origin, session.version, lambda: {"session": brief(session)})
    ) is not None:
        return refuse
    ended = sessions.end(origin, session, fields.status)
    cancelling.cancel_of_session(ended.id, call.received_us)
    leases.end_of_session(ended.id, call.received_us)
    return Reply(200, brief(ended))


@reading
def get_session(call: Call, session: UUID) -> HttpResponse:
    """Return one session with its current lease; null if it was never leased."""
    row = find_session(call.project, session)
    lease = fencing.standing(call.project, row.id)
    return as_json(
        200, describe(row) | {"lease": None if lease is None else fencing.describe(lease)}
    )


@reading
def list_sessions(call: Call) -> HttpResponse:
    """List sessions of the project, newest first."""
    params = parameters(call.request, {"limit", "after", "status", "key"})
    rows = Session.objects.filter(project=call.project).select_related(*_RELATED)
    if "status" in params:
        if params["status"] not in STATUSES:
            raise Problem(
                422,
                "invalid",
                f"`status` is invalid. Send one of {', '.join(STATUSES)}.",
                pointer="/status",
            )
        rows = rows.filter(status=params["status"])
    if "key" in params:
        rows = rows.filter(key=params["key"])
    return as_json(200, page(rows, params, describe))


@command(shapes.CreateTask, "task.created")
def create_task(
    call: Call, fields: shapes.CreateTask, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Create a task of a session, or return the task that has this key."""
    session = enter(call, path["session"])
    if (refuse := refusal(call, origin)) is not None:
        return refuse
    values = {name: getattr(fields, name) for name in fields.__struct_fields__}
    try:
        task, created = tasks.create(origin, session, values)
    except tasks.UnknownParent:
        raise Problem(
            422, "parent_unknown", str(tasks.UnknownParent.__doc__), pointer="/parent"
        ) from None
    except tasks.Circle:
        raise Problem(
            422, "parent_is_below", str(tasks.Circle.__doc__), pointer="/parent"
        ) from None
    return Reply(201 if created else 200, _task_brief(task), kept=created)


@command(shapes.ChangeTask, "task.changed")
def change_task(
    call: Call, fields: shapes.ChangeTask, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Change a task. Omitted fields keep their values."""
    task = _lock_task(call, path["task"])
    if (
        refuse := refusal(call, origin, task.version, lambda: {"task": _task_brief(task)})
    ) is not None:
        return refuse
    values = {name: getattr(fields, name) for name in fields.__struct_fields__}
    return Reply(200, _task_result(tasks.change(origin, task, values)))


@command(FinishTask, "task.done")
def finish_task(call: Call, _fields: FinishTask, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Mark a task as done. The response counts its open subtasks and items."""
    task = _lock_task(call, path["task"])
    if (
        refuse := refusal(call, origin, task.version, lambda: {"task": _task_brief(task)})
    ) is not None:
        return refuse
    return Reply(200, _task_result(tasks.finish(origin, task)))


def _task_result(task: Task) -> dict[str, Any]:
    """Serialize a changed task; count open subtasks and items if it is done."""
    if task.state != "done":
        return _task_brief(task)
    controls.watch(task.session_id, task.updated_at_us)
    return _task_brief(task) | {
        "open_tasks": tasks.open_below(task),
        "open_items": items.open_of(task),
    }


@reading
def list_tasks(call: Call, session: UUID) -> HttpResponse:
    """List the tasks of a session, newest first."""
    params = parameters(call.request, {"limit", "after"})
    return as_json(
        200, page(find_session(call.project, session).tasks.all(), params, _task_to_json)
    )


@command(shapes.PutItems, "task.changed")
def put_items(call: Call, fields: shapes.PutItems, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Set the state of items of a task: pending, done or failed."""
    task = _lock_task(call, path["task"])
    if (
        refuse := refusal(call, origin, task.version, lambda: {"task": _task_brief(task)})
    ) is not None:
        return refuse
    try:
        counts = items.put(origin, task, {item.key: item.state for item in fields.items})
    except items.TooMany:
        raise Problem(422, "too_many_items", str(items.TooMany.__doc__), pointer="/items") from None
    return Reply(
        200,
        {"task": str(task.id), **counts, "version": tasks.count_change(task, origin.received_us)},
    )


@reading
def list_items(call: Call, task: UUID) -> HttpResponse:
    """List the first 10,000 items of a task, with counts of all per state.

    Reports can add more than 10,000 items.
    """
    params = parameters(call.request, {"state"})
    if params.get("state", "done") not in ITEM_STATES:
        raise Problem(
            422,
            "invalid",
            f"`state` is invalid. Send one of {', '.join(ITEM_STATES)}.",
            pointer="/state",
        )
    stored = _find_task(call.project, task)
    rows = stored.items.filter(**params).order_by("key").values("key", "state", "changed_at_us")
    return as_json(
        200, {"items": list(rows[: items.MOST]), **items.progress([stored.id])[stored.id]}
    )


sessions_door = by_method(POST=open_session, GET=list_sessions)
tasks_door = by_method(POST=create_task, GET=list_tasks)
items_door = by_method(POST=put_items, GET=list_items)


def describe(session: Session) -> dict[str, Any]:
    """Serialize a session."""
    return {
        **brief(session),
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


def brief(session: Session) -> dict[str, Any]:
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


def find_session(project: UUID, identity: UUID) -> Session:
    session = Session.objects.select_related(*_RELATED).filter(project=project, id=identity).first()
    if session is None:
        raise Problem(
            404, "not_found", "The project has no such session. Open it first with POST /sessions."
        )
    return session


def _find_task(project: UUID, identity: UUID) -> Task:
    task = Task.objects.filter(project=project, id=identity).first()
    if task is None:
        raise Problem(404, "not_found", "The project has no such task. Create it first.")
    return task


def _lock_task(call: Call, identity: UUID) -> Task:
    enter(call, _find_task(call.project, identity).session_id)
    call.task = identity
    return _find_task(call.project, identity)  # read again after the lock
