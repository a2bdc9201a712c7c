"""What the session page reads besides its timeline: counts, the task tree, sub-sessions, artifacts."""

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.models import Case, CharField, Count, Exists, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce

from inquiry import controls, incident_page, liveness, repeating, shown
from inquiry.indexes import IS_A_CLAIM
from inquiry.keyset import Window
from journal import horizon
from journal.compiled import Compiled
from journal.models import Entry
from ledger import same_calls
from ledger.models import Effect
from sessions.models import ITEM_STATES, Artifact, Item, Project, Session, Task
from sessions.models_leases import Lease
from sessions.models_state import Handoff

TASKS: Final = 20  # rows on the session page; the lists of their own go on by keyset paging
CHILDREN: Final = 10
ARTIFACTS: Final = 10
ITEMS: Final = 200
ELSEWHERE: Final = 20
DEEPEST: Final = 6  # levels of the task tree that are indented


LEASE: Final = ("process", "epoch", "beat_at_us", "progress_at_us")  # beside those that liveness reads


def session(project: Project, session_id: UUID) -> Session | None:
    """The session with its agent, owner, repository and parent, or None when it is not this project's.

    `controls_fired` is how many findings of controls the book has of it, None for none; `handoff_waits` whether a
    handoff waits to be accepted; `settled_to` how far the book had settled before anything else was read; `lease_…`
    what is known of its lease; `in_incident` whether it belongs to an incident; `repeats` how often it made one and the
    same call, None where it made each once, and `repeated` the position of the last effect that did; `not_compared`
    whether the index of repeated calls has not read all that ran in it; `has_claims` whether agents reported on it that
    may not speak for it; `named` whether a same call of another session is named with one of it.
    """
    found: list[Session] = _SESSION.rows(project=project.id, session=session_id)
    for one in found:
        one.project = project
    return found[0] if found else None


def _session(project: UUID, session: UUID) -> "QuerySet[Session]":
    here = Session.objects.filter(project=project, id=session)
    joined = here.select_related("agent", "owner", "on_behalf_of", "repository", "parent", "branched_from")
    waits = Exists(Handoff.objects.filter(session=OuterRef("id"), accept_by_us__isnull=False))
    lease = Lease.objects.filter(session=OuterRef("id"), kind="session")
    held = {f"lease_{name}": Subquery(lease.values(name)[:1]) for name in LEASE}
    read: dict[str, Any] = {
        **held,
        **liveness.columns(),
        "controls_fired": controls.how_often(),
        "handoff_waits": waits,
        "settled_to": horizon.as_column(),
        "in_incident": incident_page.is_member("session"),
        "has_claims": Exists(Entry.objects.filter(IS_A_CLAIM, session=OuterRef("id"))),
        "named": same_calls.is_named(**same_calls.OF_SESSION),
        **repeating.most(),
        "not_compared": repeating.not_compared("session"),
    }
    return joined.annotate(**read)


_SESSION: Final = Compiled(_session, project=UUID, session=UUID)


@dataclass(slots=True)
class Counts:
    """How many effects stand in each shown state (those with any, in the order of life), and what else is counted."""

    by_state: list[tuple[str, str, int]] = field(default_factory=list)  # (key, word, number)
    effects: int = 0
    errors: int = 0
    violations: int = 0
    redactions: int = 0
    commanded: int = 0  # planned by command, before anything happened
    attempts: int = 0
    errors_acknowledged: int = 0
    tools: list[tuple[str, int]] = field(default_factory=list)  # most used first


def counts(session: Session, now_us: int) -> Counts:
    """Count the session's effects by shown state and tool, in one query."""
    groups = _COUNTS.rows(session=session.id, now_us=now_us)
    result = Counts()
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
    result.by_state = [(state, word, states[state]) for state, word in shown.STATES.items() if state in states]
    result.tools = sorted(((tool, n) for tool, n in tools.items() if tool), key=lambda pair: (-pair[1], pair[0]))
    return result


def _counts(session: UUID, now_us: int) -> "QuerySet[Any, Any]":
    whens = [When(condition, then=Value(state)) for state in shown.STATES for condition in shown.arms(state, now_us)]
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


_COUNTS: Final = Compiled(_counts, session=UUID, now_us=int)


@dataclass(slots=True)
class ItemPage:
    """Items in order; `further` is what to pass as `after` for the next page."""

    rows: list[Item]
    further: int | None


@dataclass(slots=True)
class TaskRow:
    """A task in the tree (see `all_tasks`), and how deep it stands there."""

    task: Any
    depth: int


def all_tasks(session: Session) -> "QuerySet[Any]":
    """The tasks of the session, each with how many of its items are `done`, `failed` and `known` at all."""
    return Task.objects.filter(session=session).annotate(
        done=Count("items", filter=Q(items__state="done")),
        failed=Count("items", filter=Q(items__state="failed")),
        known=Count("items"),
    )


def tasks(session: Session) -> tuple[list[TaskRow], bool]:
    """The first tasks of the session as a tree, parents before children, and whether there are more. One query."""
    found = list(all_tasks(session).order_by("opened_position")[: TASKS + 1])
    shown_tasks = found[:TASKS]
    known = {task.id for task in shown_tasks}
    children: dict[UUID | None, list[Task]] = {}
    for task in shown_tasks:
        children.setdefault(task.parent_id if task.parent_id in known else None, []).append(task)
    rows: list[TaskRow] = []
    seen: set[UUID] = set()
    pending = [(task, 0) for task in reversed(children.get(None, []))]
    while pending or len(seen) < len(shown_tasks):
        if not pending:  # parents that name each other in a circle: agents may report even that
            pending.append((next(task for task in shown_tasks if task.id not in seen), 0))
        task, depth = pending.pop()
        if task.id in seen:
            continue
        seen.add(task.id)
        rows.append(TaskRow(task, min(depth, DEEPEST)))
        pending += [(child, depth + 1) for child in reversed(children.get(task.id, []))]
    return rows, len(found) > TASKS


def children(session: Session) -> tuple[list[Session], bool]:
    """The newest sub-sessions, and whether there are more. One query."""
    found = list(
        Session.objects.filter(parent=session).select_related("agent").order_by("-opened_position")[: CHILDREN + 1]
    )
    liveness.attach(found[:CHILDREN])
    return found[:CHILDREN], len(found) > CHILDREN


def artifacts(session: Session) -> tuple[list[Artifact], bool]:
    """The newest artifacts, and whether there are more. One query."""
    found = list(Artifact.objects.filter(session=session).order_by("-opened_position")[: ARTIFACTS + 1])
    return found[:ARTIFACTS], len(found) > ARTIFACTS


def elsewhere(session: Any) -> list[tuple[Effect, same_calls.Link]]:
    """Its newest effects that are named with the same call of another session. One query where there are any."""
    return same_calls.of_session(session.id, ELSEWHERE) if session.named else []


def item_counts(task: Task) -> list[tuple[str, int]]:
    """How many items of the task stand in each state, those with any."""
    found = dict(task.items.values_list("state").annotate(number=Count("id")).order_by())
    return [(state, found[state]) for state in ITEM_STATES if state in found]


def items(task: Task, state: str, window: Window) -> ItemPage:
    """A page of the task's items in the order they were first told, of one state when it is named. One query."""
    chosen = task.items.filter(state=state) if state else task.items.all()
    if window.after is not None:
        chosen = chosen.filter(id__gt=window.after)
    found = list(chosen.order_by("id")[: ITEMS + 1])
    return ItemPage(found[:ITEMS], found[ITEMS - 1].id if len(found) > ITEMS else None)


def subtasks(task: Task) -> list[Any]:
    """The tasks directly under this one, the oldest first."""
    return list(all_tasks(task.session).filter(parent=task).order_by("opened_position")[:TASKS])
