"""The one writer of Task: the tree of a session's work."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import BigIntegerField, F, Value
from django.db.models.functions import Greatest

from db import raw_sql
from db.ids import derive_uuid
from db.raw_sql import read_uuid, vendor_id
from db.row_changes import RowChange, write_row_changes
from db.text import to_column_text
from journal import entries
from journal.entries import Origin, RepeatedKey
from journal.order_keys import is_earlier_mark
from sessions.models import Session, Task

TASK_FACT_KINDS: Final = frozenset({"task.created", "task.changed", "task.done"})
_CREATED: Final = ("title", "priority", "worker", "branch_label", "state")
_DEFAULTS: Final[dict[str, Any]] = {
    "title": "",
    "priority": 0,
    "worker": "",
    "branch_label": "",
    "state": "pending",
}


class UnknownParentTask(Exception):
    """The session has no task with the id or key of the parent."""


class TaskCycle(Exception):
    """The parent is the task itself or one of its descendants."""


@dataclass(slots=True)
class TaskFact:
    """A fact about a task, already in the journal."""

    session: UUID
    key: str
    origin: Origin
    kind: str
    position: int
    values: Mapping[str, Any]


def import_tasks(rows: Sequence[Task]) -> None:
    """Store tasks of a bundle as their source had them, in their archive."""
    Task.objects.bulk_create(rows, batch_size=500)


def restore_tasks(changes: Sequence[RowChange]) -> None:
    """Restore tasks to what the journal gives (manage.py rebuild)."""
    write_row_changes(Task, changes)


def derive_task_id(session: UUID, key: str) -> UUID:
    """Derive the id of the task that `key` names in a session, stored or not."""
    return derive_uuid(session, "task", key)


def add_task(origin: Origin, session: Session, values: Mapping[str, Any]) -> tuple[Task, bool]:
    """Create a task by command; return it and whether it is new.

    A key that exists names the same task: nothing changes and nothing is recorded. Raises
    UnknownParentTask, TaskCycle, RepeatedKey.
    """
    parent = values.get("parent")
    if parent:
        parent_task = find_task(session, parent)
        identifier = derive_task_id(session.id, values["key"])
        if parent_task is not None and identifier in _load_ancestors(parent_task.id):
            raise TaskCycle(parent)
        if parent_task is None:
            raise (
                TaskCycle(parent)
                if derive_task_id(session.id, parent) == identifier
                else UnknownParentTask(parent)
            )
    stored = (
        Task.objects.select_for_update()
        .filter(id=derive_task_id(session.id, values["key"]))
        .first()
    )
    if stored is not None and stored.created_mark:
        if entries.compare_with_stored(
            origin.draft("task.created", session=session.id, subject=stored.id), origin.received_us
        ):
            raise RepeatedKey
        return stored, False
    report = _append_command(origin, "task.created", session.id, values["key"], values)
    return apply_task_facts([report])[report.session, report.key], True


def update_task(origin: Origin, task: Task, values: Mapping[str, Any]) -> Task:
    """Change a task's fields by command.

    Fields are state, title, priority, worker, branch_label.

    Raises RepeatedKey.
    """
    report = _append_command(origin, "task.changed", task.session_id, task.key, values)
    return apply_task_facts([report])[report.session, report.key]


def complete_task(origin: Origin, task: Task) -> Task:
    """Mark a task as done by command. Raises RepeatedKey."""
    report = _append_command(origin, "task.done", task.session_id, task.key, {})
    return apply_task_facts([report])[report.session, report.key]


def find_task(session: Session, reference: str) -> Task | None:
    """Return the stored task with that id or key in a session, or None."""
    wanted = [derive_task_id(session.id, reference)]
    with suppress(ValueError):
        wanted.append(UUID(reference))
    return Task.objects.filter(session=session, id__in=wanted).first()


_SELECT_ANCESTORS: Final = """WITH RECURSIVE up (id, parent_id) AS (
  SELECT id, parent_id FROM agent_sessions_task WHERE id = %s
  UNION SELECT task.id, task.parent_id FROM agent_sessions_task task
    JOIN up ON task.id = up.parent_id
) SELECT id, parent_id FROM up"""


def _load_ancestors(task: UUID) -> set[UUID]:
    """Return a task and its ancestors, including parents that are not stored."""
    identifiers = {
        value
        for row in raw_sql.fetch_rows(_SELECT_ANCESTORS, [vendor_id(task)])
        for value in row
        if value is not None
    }
    return {read_uuid(value) for value in identifiers}


def count_open_subtasks(task: Task) -> int:
    """Count the direct subtasks that are pending, running or blocked."""
    return Task.objects.filter(
        session=task.session_id, parent=task, state__in=("pending", "running", "blocked")
    ).count()


def bump_task_version(task: Task, now_us: int) -> int:
    """Count a change of items as one of the task, whose session is locked."""
    bump_task_versions([task.id], now_us)
    return Task.objects.values_list("version", flat=True).get(id=task.id)


def bump_task_versions(tasks: Iterable[UUID], now_us: int) -> None:
    """Do as `bump_task_version` for several tasks."""
    rows = Task.objects.filter(id__in=list(tasks))
    # Django sends a plain number as 32 bits, which PostgreSQL truncates.
    now = Value(now_us, output_field=BigIntegerField())
    rows.update(version=F("version") + 1, updated_at_us=Greatest("updated_at_us", now))


def _append_command(
    origin: Origin, kind: str, session: UUID, key: str, values: Mapping[str, Any]
) -> TaskFact:
    facts = orjson.dumps({"state": values["state"]} if values.get("state") else {}).decode()
    draft = origin.draft(kind, facts=facts, session=session, subject=derive_task_id(session, key))
    position = origin.append_draft(draft)
    return TaskFact(session, key, origin, kind, position, values)


def apply_task_facts(reports: Sequence[TaskFact]) -> dict[tuple[UUID, str], Task]:
    """Apply facts to their tasks, and create tasks that no fact has named before.

    The session rows must be locked.
    """
    keys = {(fact.session, fact.key): derive_task_id(fact.session, fact.key) for fact in reports}
    stored = Task.objects.in_bulk(list(keys.values())) if keys else {}
    tasks: dict[tuple[UUID, str], Task] = {}
    for fact in reports:
        key = fact.session, fact.key
        if key not in tasks:
            tasks[key] = stored.get(keys[key]) or build_task(fact)
        parent = fact.values.get("parent") if fact.kind == "task.created" else None
        parent_id = _resolve_parent(fact.session, parent) if parent else None
        fold_task_fact(tasks[key], fact, parent_id)
    for _key, task in sorted(tasks.items()):
        task.version += 1
        task.save()
    return tasks


def fold_task_fact(task: Task, fact: TaskFact, parent_id: UUID | None) -> None:
    """Fold one fact into a task: its fields, and the history that decides them. Pure.

    Per field the latest change counts, else the first creation; a task once reported done stays
    done. The facts' order keys decide, never their order of arrival.
    """
    mark, latest = fact.origin.mark, fact.origin.latest_mark(fact.position)
    task.updated_at_us = max(task.updated_at_us, fact.origin.received_us)
    if fact.kind == "task.created" and is_earlier_mark(mark, task.created_mark):
        task.created_mark = mark
        task.parent_id = parent_id if parent_id != task.id else None
    verb = "changed" if fact.kind == "task.changed" else "created"
    for name in _CREATED:
        value = fact.values.get(name)
        if value is None:
            continue
        if name == "title":
            value = to_column_text(value)
        entry = task.field_history.setdefault(name, {}).get(verb)
        if verb == "changed" and (entry is None or latest > entry[0]):
            task.field_history[name][verb] = [latest, value]
        elif verb == "created" and (entry is None or mark < entry[0]):
            task.field_history[name][verb] = [mark, value]
    done = fact.kind == "task.done" or fact.values.get("state") == "done"
    if done and is_earlier_mark(mark, task.done_mark):
        task.done_mark, task.done_at_us = mark, fact.origin.told_us
    for name in _CREATED:
        history = task.field_history.get(name, {})
        entry = history.get("changed") or history.get("created") or ["", _DEFAULTS[name]]
        setattr(task, name, entry[1])
    if task.done_mark:
        task.state = "done"


def ensure_task(origin: Origin, session: UUID, key: str, position: int) -> UUID:
    """Store the task that a fact mentions, if missing, and return its id.

    A task that no fact has created yet has no title.
    """
    task, _created = Task.objects.get_or_create(
        id=derive_task_id(session, key),
        defaults={
            "project_id": origin.project,
            "session_id": session,
            "key": key,
            "opened_position": position,
            "created_at_us": origin.received_us,
            "updated_at_us": origin.received_us,
        },
    )
    return task.id


def build_task(fact: TaskFact) -> Task:
    """Return the task that a fact is the first to name."""
    return Task(
        id=derive_task_id(fact.session, fact.key),
        project_id=fact.origin.project,
        session_id=fact.session,
        key=fact.key,
        opened_position=fact.position,
        created_at_us=fact.origin.received_us,
        updated_at_us=fact.origin.received_us,
        version=0,
    )


def _resolve_parent(session: UUID, reference: str) -> UUID:
    """Return the id of a parent named by key, or by the id of a stored task.

    A parent that no fact has named yet is only referenced.
    """
    by_key = derive_task_id(session, reference)
    try:
        by_id = UUID(reference)
    except ValueError:
        return by_key
    return by_id if Task.objects.filter(session=session, id=by_id).exists() else by_key
