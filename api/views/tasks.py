"""Endpoints for tasks and their items."""

from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse

from api.endpoint import Call, build_json_response, dispatch_by_method, get_endpoint, post_command
from api.idempotency import Reply
from api.pagination import build_page, check_choice, parse_parameters
from api.preconditions import (
    check_preconditions,
    lock_session_of_call,
)
from api.problems import Problem, build_not_found
from api.schemas import core
from api.schemas.working_state import FinishTask
from api.views.sessions import require_session
from journal.entries import Origin
from recovery import detectors
from sessions import items, tasks
from sessions.models import ITEM_STATES, Task


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
            422,
            "parent_unknown",
            "The session has no task with that id or key. Create the parent first.",
            pointer="/parent",
        ) from None
    except tasks.TaskCycle:
        raise Problem(
            422,
            "parent_is_below",
            "The parent is the task itself or one of its descendants. Name another parent.",
            pointer="/parent",
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
            422,
            "too_many_items",
            f"A task has at most {items.MAX_TASK_ITEMS:,} items. Split the task.",
            pointer="/items",
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


tasks_endpoint = dispatch_by_method(POST=create_task, GET=list_tasks)


items_endpoint = dispatch_by_method(POST=put_items, GET=list_items)


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


def _check_task_preconditions(call: Call, origin: Origin, task: Task) -> Reply | None:
    return check_preconditions(call, origin, task.version, lambda: {"task": _task_brief(task)})


def _find_task(project: UUID, identity: UUID) -> Task:
    task = Task.objects.filter(project=project, id=identity).first()
    if task is None:
        raise build_not_found("task")
    return task


def _lock_task(call: Call, identity: UUID) -> Task:
    lock_session_of_call(call, _find_task(call.project, identity).session_id)
    call.task = identity
    return _find_task(call.project, identity)  # read again after the lock
