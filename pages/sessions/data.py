"""Data of the session page except its timeline.

Counts, tasks, sub-sessions, artifacts.
"""

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.models import (
    Case,
    CharField,
    Count,
    Exists,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Coalesce
from django.http import Http404

from accounts.access import MemberRequest
from accounts.models import Project
from db.compiled_query import CompiledQuerySet
from display import display_state
from display.keyset_pagination import Window
from investigation.fulltext import duplicate_index
from journal.models import Entry
from ledger import same_calls
from ledger.models import Effect
from ledger.partial_indexes import IS_A_CLAIM
from monitoring.stuck import board
from pages.incidents import data
from recovery import detectors, liveness
from sessions.models import ITEM_STATES, Artifact, Handoff, Item, Lease, Session, Task

MAX_TASKS: Final = 20  # rows on the session page; the separate lists use keyset paging
MAX_CHILDREN: Final = 10
MAX_ARTIFACTS: Final = 10
ITEMS_PER_PAGE: Final = 200
MAX_SAME_CALLS: Final = 20
MAX_DEPTH: Final = 6  # indented levels of the task tree


LEASE_COLUMNS: Final = (
    "process",
    "epoch",
    "heartbeat_at_us",
    "progress_at_us",
)  # columns besides those that liveness reads


def load_session_for_page(project: Project, session_id: UUID) -> Session | None:
    """Load the session with its agent, owner, repository and parent.

    None for another project.

    `controls_fired`: recorded findings of controls, None for none.
    `handoff_waits`: whether a handoff is not yet accepted.
    `lease_…`: columns of its lease.
    `in_incident`: whether it belongs to an incident.
    `repeats`: how often it made the same call, None if each call was made once.
    `repeated`: the position of the last effect that repeated a call.
    `not_compared`: whether the duplicate index has not read all of its effects.
    `has_claims`: whether agents without the right to report for it did so.
    `named`: whether the same call of another session is linked with one of its effects.
    `is_stuck`: whether a stuck rule other than of one effect or gate holds for the session.
    """
    rows: list[Session] = _SESSION.rows(project=project.id, session=session_id)
    for row in rows:
        row.project = project
    return rows[0] if rows else None


def load_session_or_404(request: MemberRequest, session_id: UUID) -> Any:
    row = load_session_for_page(request.membership.project, session_id)
    if row is None:
        raise Http404
    return row


def _session_query(project: UUID, session: UUID) -> "QuerySet[Session]":
    rows = Session.objects.filter(project=project, id=session)
    joined = rows.select_related(
        "agent", "owner", "on_behalf_of", "repository", "parent", "branched_from"
    )
    waits = Exists(Handoff.objects.filter(session=OuterRef("id"), accept_by_us__isnull=False))
    lease = Lease.objects.filter(session=OuterRef("id"), kind="session")
    lease_columns = {f"lease_{name}": Subquery(lease.values(name)[:1]) for name in LEASE_COLUMNS}
    read: dict[str, Any] = {
        **lease_columns,
        **liveness.liveness_columns(),
        "controls_fired": detectors.finding_count_subquery(),
        "handoff_waits": waits,
        "in_incident": data.incident_member_condition("session"),
        "has_claims": Exists(Entry.objects.filter(IS_A_CLAIM, session=OuterRef("id"))),
        "named": same_calls.has_same_call(**same_calls.OF_SESSION),
        **duplicate_index.annotate_repeats(),
        "not_compared": duplicate_index.is_unindexed_condition("session"),
        "is_stuck": Exists(board.open_session_episodes(OuterRef("id"))),
    }
    return joined.annotate(**read)


_SESSION: Final = CompiledQuerySet(_session_query, project=UUID, session=UUID)


@dataclass(slots=True)
class EffectCounts:
    """Number of effects by shown state (those with any, in life order), and more."""

    by_state: list[tuple[str, str, int]] = field(default_factory=list)  # (key, word, number)
    effects: int = 0
    errors: int = 0
    violations: int = 0
    redactions: int = 0
    commanded: int = 0  # planned by command, before they ran
    attempts: int = 0
    errors_acknowledged: int = 0
    tools: list[tuple[str, int]] = field(default_factory=list)  # most used first


def count_effects(session: Session, now_us: int) -> EffectCounts:
    """Count the session's effects by shown state and tool. One query."""
    groups = _COUNTS.rows(session=session.id, now_us=now_us)
    result = EffectCounts()
    states: dict[str, int] = {}
    tools: dict[str, int] = {}
    for group in groups:
        states[group["shown"]] = states.get(group["shown"], 0) + group["number"]
        tools[group["tool"]] = tools.get(group["tool"], 0) + group["number"]
        result.effects += group["number"]
        result.errors += group["errors"]
        result.violations += group["violations"]
        result.redactions += group["redactions"]
        result.commanded += group["commanded"]
        result.attempts += group["tried"]
        result.errors_acknowledged += group["errors"] if group["shown"] == "acknowledged" else 0
    result.by_state = [
        (state, word, states[state])
        for state, word in display_state.STATES.items()
        if state in states
    ]
    result.tools = sorted(
        ((tool, n) for tool, n in tools.items() if tool), key=lambda pair: (-pair[1], pair[0])
    )
    return result


def _counts_query(session: UUID, now_us: int) -> "QuerySet[Any, Any]":
    whens = [
        When(condition, then=Value(state))
        for state in display_state.STATES
        for condition in display_state.shown_state_conditions(state, now_us)
    ]
    return (
        Effect.objects.filter(session=session)
        .annotate(shown=Case(*whens, output_field=CharField()))
        .values("shown", "tool")
        .annotate(
            number=Count("id"),
            errors=Count("id", filter=Q(outcome="error")),
            violations=Count("id", filter=Q(violates=True)),
            redactions=Coalesce(Sum("redactions"), 0),
            commanded=Count("id", filter=Q(lane="command")),
            tried=Coalesce(Sum("attempt_count"), 0),
        )
        .order_by()
    )


_COUNTS: Final = CompiledQuerySet(_counts_query, session=UUID, now_us=int)


@dataclass(slots=True)
class ItemPage:
    """Items in order; `further` is the `after` value of the next page."""

    rows: list[Item]
    further: int | None


@dataclass(slots=True)
class TaskRow:
    """A task in the tree (see `tasks_with_item_counts`) with its depth."""

    task: Any
    depth: int


def tasks_with_item_counts(session: Session) -> "QuerySet[Any]":
    """Return the session's tasks with item counts `done`, `failed`, `known`."""
    return Task.objects.filter(session=session).annotate(
        done=Count("items", filter=Q(items__state="done")),
        failed=Count("items", filter=Q(items__state="failed")),
        known=Count("items"),
    )


def load_task_tree(session: Session) -> tuple[list[TaskRow], bool]:
    """Return the first tasks as a tree, and whether there are more. One query."""
    rows_read = list(tasks_with_item_counts(session).order_by("opened_position")[: MAX_TASKS + 1])
    shown_tasks = rows_read[:MAX_TASKS]
    ids = {task.id for task in shown_tasks}
    children: dict[UUID | None, list[Task]] = {}
    for task in shown_tasks:
        children.setdefault(task.parent_id if task.parent_id in ids else None, []).append(task)
    rows: list[TaskRow] = []
    visited: set[UUID] = set()
    pending = [(task, 0) for task in reversed(children.get(None, []))]
    while pending or len(visited) < len(shown_tasks):
        if not pending:  # agents may report parents that form a cycle
            pending.append((next(task for task in shown_tasks if task.id not in visited), 0))
        task, depth = pending.pop()
        if task.id in visited:
            continue
        visited.add(task.id)
        rows.append(TaskRow(task, min(depth, MAX_DEPTH)))
        pending += [(child, depth + 1) for child in reversed(children.get(task.id, []))]
    return rows, len(rows_read) > MAX_TASKS


def load_sub_sessions(session: Session) -> tuple[list[Session], bool]:
    """Return the newest sub-sessions, and whether there are more. One query."""
    rows = list(
        Session.objects.filter(parent=session)
        .select_related("agent")
        .order_by("-opened_position")[: MAX_CHILDREN + 1]
    )
    liveness.attach_liveness(rows[:MAX_CHILDREN])
    return rows[:MAX_CHILDREN], len(rows) > MAX_CHILDREN


def load_session_artifacts(session: Session) -> tuple[list[Artifact], bool]:
    """Return the newest artifacts, and whether there are more. One query."""
    rows = list(
        Artifact.objects.filter(session=session).order_by("-opened_position")[: MAX_ARTIFACTS + 1]
    )
    return rows[:MAX_ARTIFACTS], len(rows) > MAX_ARTIFACTS


def load_same_calls_of_session(session: Any) -> list[tuple[Effect, same_calls.SameCallLink]]:
    """Return its newest effects with a same call elsewhere. At most one query."""
    return same_calls.load_links_of_session(session.id, MAX_SAME_CALLS) if session.named else []


def count_items(task: Task) -> list[tuple[str, int]]:
    """Return the number of items of the task by state, without empty states."""
    counts_by_state = dict(task.items.values_list("state").annotate(number=Count("id")).order_by())
    return [(state, counts_by_state[state]) for state in ITEM_STATES if state in counts_by_state]


def load_item_page(task: Task, state: str, window: Window) -> ItemPage:
    """Return a page of a task's items in reported order, by state. One query."""
    chosen = task.items.filter(state=state) if state else task.items.all()
    if window.after is not None:
        chosen = chosen.filter(id__gt=window.after)
    rows = list(chosen.order_by("id")[: ITEMS_PER_PAGE + 1])
    return ItemPage(
        rows[:ITEMS_PER_PAGE], rows[ITEMS_PER_PAGE - 1].id if len(rows) > ITEMS_PER_PAGE else None
    )


def load_subtasks(task: Task) -> list[Any]:
    """Return the direct subtasks, oldest first."""
    return list(
        tasks_with_item_counts(task.session)
        .filter(parent=task)
        .order_by("opened_position")[:MAX_TASKS]
    )
