"""Checks of sessions, their tasks and the items of tasks."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from django.db.models import Model, QuerySet

from rebuild.checks.effect_checks import load_folded_effects
from rebuild.project_names import load_project_names
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, register_row_check
from rebuild.session_fold import ERASED_PLAN, OF_FIRST_PLAN, FoldedTasks, fold_session, fold_tasks
from rebuild.session_journal import load_session_journals
from sessions import items, sessions, tasks
from sessions.models import Item, Session, Task

_WRITES: Final = "counts how often the row was written"
_NUMBER: Final = "a number of the table, to which nothing refers"


def row_values(row: Model, uncomputed: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns of an unsaved row."""
    fields = row._meta.concrete_fields
    names = [field.attname for field in fields if field.attname not in uncomputed]
    return {name: getattr(row, name) for name in names}


SESSION_UNCOMPUTED: Final = {
    "version": _WRITES,
    "seen_at_us": "heartbeats move it, which are not in the journal",
}
TASK_UNCOMPUTED: Final = {"version": _WRITES}
ITEM_UNCOMPUTED: Final = {"id": _NUMBER}


def _fold_sessions(batch: RebuildBatch) -> Iterator[FoldedRow]:
    names = load_project_names(batch)
    effects = {} if batch.is_rest else load_folded_effects(batch)
    stored = Session.objects.in_bulk(list(batch.sessions))
    for session, journal in load_session_journals(batch).items():
        count = batch.effect_count if batch.is_rest else len(effects[session])
        folded = fold_session(journal, names, count, stored.get(session))
        if folded is not None:
            values = row_values(folded.row, SESSION_UNCOMPUTED)
            yield FoldedRow((session,), values, folded.position, folded.unknown)


def _load_folded_tasks(batch: RebuildBatch) -> dict[UUID, FoldedTasks]:
    if "tasks" not in batch.cache:
        batch.cache["tasks"] = {
            session: fold_tasks(journal)
            for session, journal in load_session_journals(batch).items()
        }
    folded: dict[UUID, FoldedTasks] = batch.cache["tasks"]
    return folded


def _fold_tasks(batch: RebuildBatch) -> Iterator[FoldedRow]:
    for folded in _load_folded_tasks(batch).values():
        for key, task in folded.tasks.items():
            values = row_values(task, TASK_UNCOMPUTED)
            unknown = folded.unknown.get(key, {})
            yield FoldedRow((key,), values, folded.positions[key], unknown)


def _fold_items(batch: RebuildBatch) -> Iterator[FoldedRow]:
    for folded in _load_folded_tasks(batch).values():
        for (task, key), item in folded.items.items():
            values = row_values(item, ITEM_UNCOMPUTED)
            unknown = dict.fromkeys(_OF_ITEM, ERASED_ITEM) if task in folded.lost else {}
            yield FoldedRow((task, key), values, folded.positions[task], unknown)


ERASED_ITEM: Final = "an entry about items of the task has no body any more"
_OF_ITEM: Final = ("state", "mark", "changed_at_us")


def _is_lost_task(batch: RebuildBatch, stored: Mapping[str, Any]) -> str:
    """Excuse a task that a plan of its session without a body opened."""
    folded = _load_folded_tasks(batch)[stored["session_id"]]
    return ERASED_PLAN if stored["opened_position"] in folded.lost_plans else ""


def _is_lost_item(batch: RebuildBatch, stored: Mapping[str, Any]) -> str:
    """Excuse an item that was set at the time of an entry about its task without a body."""
    folded = _load_folded_tasks(batch).values()
    times = (of_session.lost.get(stored["task_id"], set()) for of_session in folded)
    return ERASED_ITEM if any(stored["changed_at_us"] in moments for moments in times) else ""


def _select_sessions(batch: RebuildBatch) -> "QuerySet[Any]":
    return Session.objects.filter(id__in=batch.sessions)


def _select_tasks(batch: RebuildBatch) -> "QuerySet[Any]":
    return Task.objects.filter(session__in=batch.sessions)


def _select_items(batch: RebuildBatch) -> "QuerySet[Any]":
    return Item.objects.filter(task__session__in=batch.sessions)


def _complete_session(row: FoldedRow) -> Mapping[str, Any]:
    return {"version": 1, "seen_at_us": row.values["created_at_us"]}


def _complete_task(row: FoldedRow) -> Mapping[str, Any]:
    """Return what a missing task gets although it may have been opened earlier."""
    return {name: row.values[name] for name in OF_FIRST_PLAN}


def register_session_checks() -> None:
    """Register the checks of sessions, tasks and items."""
    register_row_check(
        Session._meta.db_table,
        RowCheck(
            Session,
            ("id",),
            "session",
            _fold_sessions,
            _select_sessions,
            sessions.restore_sessions,
            SESSION_UNCOMPUTED,
            _complete_session,
        ),
    )
    register_row_check(
        Task._meta.db_table,
        RowCheck(
            Task,
            ("id",),
            "session",
            _fold_tasks,
            _select_tasks,
            tasks.restore_tasks,
            TASK_UNCOMPUTED,
            _complete_task,
            excuse=_is_lost_task,
        ),
    )
    register_row_check(
        Item._meta.db_table,
        RowCheck(
            Item,
            ("task_id", "key"),
            "session",
            _fold_items,
            _select_items,
            items.restore_items,
            ITEM_UNCOMPUTED,
            excuse=_is_lost_item,
        ),
    )
