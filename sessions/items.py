"""The one writer of Item: exactly which things of a task are done, failed or still pending."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import orjson
from django.db import connection
from django.db.models import Count

from journal import entries
from journal.entries import Status
from sessions.models import Item, Task
from sessions.origin import Origin, Repeated

STATE_OF_KIND: Final = {"item.done": "done", "item.failed": "failed"}
_KIND_OF_STATE: Final = {state: kind for kind, state in STATE_OF_KIND.items()}
MOST: Final = 10_000  # items of one task by command; what reports say happened is kept, however many


class TooMany(Exception):
    """A task has at most 10,000 items; split the task."""


@dataclass(slots=True)
class Report:
    """A fact about an item that is already in the journal; the task is stored."""

    task: UUID
    key: str
    origin: Origin
    state: str
    position: int
    declares: bool = False  # says that the item is there to be done, which every word about it comes after

    @property
    def mark(self) -> str:
        """The order key by which the latest word stands."""
        return "" if self.declares else self.origin.latest_mark(self.position)


def bring(rows: Sequence[Item]) -> None:
    """Store items of a bundle, as they stood in the book of origin. Expects the archive of their session."""
    Item.objects.bulk_create(rows, batch_size=500)


def put(origin: Origin, task: Task, states: Mapping[str, str]) -> dict[str, int]:
    """Set items (key to state) by command; returns how many of the task are in each state. Raises TooMany, Repeated."""
    wanted = set(states.values())
    draft = origin.draft(
        _KIND_OF_STATE.get(wanted.pop(), "task.changed") if len(wanted) == 1 else "task.changed",
        facts=orjson.dumps({"count": len(states)}).decode(),
        session=task.session_id,
        subject=task.id,
    )
    appended = entries.append([draft], origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    known = dict(Item.objects.filter(task=task, key__in=list(states)).values_list("key", "state"))
    reports = []
    for key, state in states.items():
        declares = state == known.get(key, "pending") == "pending"
        reports.append(Report(task.id, key, origin, state, appended.position, declares))
    apply(reports)
    counts = progress([task.id])[task.id]
    if sum(counts.values()) > MOST:
        raise TooMany
    return counts


# The latest word by order key wins: text compared by code point, so the comparison is not left to a collation.
_UPSERT: Final = """INSERT INTO agent_sessions_item (project_id, task_id, key, state, mark, changed_at_us)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (task_id, key) DO UPDATE SET
  state = excluded.state, mark = excluded.mark, changed_at_us = excluded.changed_at_us
WHERE agent_sessions_item.mark {c} < excluded.mark {c}"""


def apply(reports: Sequence[Report]) -> None:
    """Fold facts into their items; the latest by order key stands, whatever the order of arrival."""
    latest: dict[tuple[UUID, str], Report] = {}
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


def open_of(task: Task) -> int:
    """How many items of the task are not done: pending or failed."""
    return Item.objects.filter(task=task).exclude(state="done").count()


def progress(tasks: Sequence[UUID]) -> dict[UUID, dict[str, int]]:
    """How many items of each task are pending, done and failed. One query, counted by the database."""
    counts: dict[UUID, dict[str, int]] = {task: {"pending": 0, "done": 0, "failed": 0} for task in tasks}
    counted = Item.objects.filter(task__in=tasks).values_list("task_id", "state").annotate(number=Count("id"))
    for task, state, number in counted.order_by():
        counts[task][state] = number
    return counts
