"""The one writer of Item: which things of a task are done, failed or pending."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import orjson
from django.db import connection
from django.db.models import Count

from db.row_changes import RowChange, write_row_changes
from journal.entries import Origin
from sessions.models import Item, Task

STATE_OF_KIND: Final = {"item.done": "done", "item.failed": "failed"}
_KIND_OF_STATE: Final = {state: kind for kind, state in STATE_OF_KIND.items()}
MAX_TASK_ITEMS: Final = 10_000  # items of one task by command; reported items have no limit


class TooManyItems(Exception):
    """A task would get more than MAX_TASK_ITEMS items."""


@dataclass(slots=True)
class ItemFact:
    """A fact about an item, already in the journal. The task is stored."""

    task: UUID
    key: str
    origin: Origin
    state: str
    position: int
    declares: bool = False  # only declares a pending item, so that every other fact replaces it

    @property
    def mark(self) -> str:
        """Return the order key that decides which fact is the latest."""
        return "" if self.declares else self.origin.latest_mark(self.position)


def import_items(rows: Sequence[Item]) -> None:
    """Store items of a bundle as their source had them, in their archive."""
    Item.objects.bulk_create(rows, batch_size=500)


def restore_items(changes: Sequence[RowChange]) -> None:
    """Restore items to what the journal gives (manage.py rebuild)."""
    write_row_changes(Item, changes)


def set_item_states(origin: Origin, task: Task, states: Mapping[str, str]) -> dict[str, int]:
    """Set items (key to state) by command; return the task's items per state.

    Raises TooManyItems, RepeatedKey.
    """
    states_wanted = set(states.values())
    draft = origin.draft(
        _KIND_OF_STATE.get(states_wanted.pop(), "task.changed")
        if len(states_wanted) == 1
        else "task.changed",
        facts=orjson.dumps({"count": len(states)}).decode(),
        session=task.session_id,
        subject=task.id,
    )
    position = origin.append_draft(draft)
    states_before = dict(
        Item.objects.filter(task=task, key__in=list(states)).values_list("key", "state")
    )
    reports = []
    for key, state in states.items():
        declares = state == states_before.get(key, "pending") == "pending"
        reports.append(ItemFact(task.id, key, origin, state, position, declares))
    apply_item_facts(reports)
    counts = count_items_by_state([task.id])[task.id]
    if sum(counts.values()) > MAX_TASK_ITEMS:
        raise TooManyItems
    return counts


# Order keys compare by code point, so the comparison names its collation.
_UPSERT: Final = """INSERT INTO agent_sessions_item
(project_id, task_id, key, state, mark, changed_at_us)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (task_id, key) DO UPDATE SET
  state = excluded.state, mark = excluded.mark, changed_at_us = excluded.changed_at_us
WHERE agent_sessions_item.mark {c} < excluded.mark {c}"""


def apply_item_facts(reports: Sequence[ItemFact]) -> None:
    """Fold facts into their items; the latest by order key counts."""
    latest: dict[tuple[UUID, str], ItemFact] = {}
    for fact in reports:
        before = latest.get((fact.task, fact.key))
        if before is None or before.mark <= fact.mark:
            latest[fact.task, fact.key] = fact
    postgresql = connection.vendor == "postgresql"
    rows = [
        [
            fact.origin.project if postgresql else fact.origin.project.hex,
            task if postgresql else task.hex,
            key,
            fact.state,
            fact.mark,
            fact.origin.received_us,
        ]
        for (task, key), fact in sorted(latest.items())
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_UPSERT.format(c='COLLATE "C"' if postgresql else ""), rows)


def count_open_items(task: Task) -> int:
    """Count the task's pending and failed items."""
    return Item.objects.filter(task=task).exclude(state="done").count()


def count_items_by_state(tasks: Sequence[UUID]) -> dict[UUID, dict[str, int]]:
    """Count the items of each task by state. One query."""
    counts: dict[UUID, dict[str, int]] = {
        task: {"pending": 0, "done": 0, "failed": 0} for task in tasks
    }
    counted = (
        Item.objects.filter(task__in=tasks)
        .values_list("task_id", "state")
        .annotate(number=Count("id"))
    )
    for task, state, number in counted.order_by():
        counts[task][state] = number
    return counts
