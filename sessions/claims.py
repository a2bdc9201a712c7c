"""Which task or session a worker gets: the most urgent that is ready, fits, and is nobody's; by one lease each.

A worker gets what is in sessions of its own, or of its team. Ready is a task that is pending (or running under a lease
that ran out) and has no unfinished task below it, in a session that has not ended and that no other worker holds.
Orphaned is a session whose lease ran out, was taken away by a person, or was given up beside a handoff that nobody has
accepted. What was merely reported here is handed to nobody.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BooleanField, Exists, F, Func, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.db.models.sql.compiler import SQLCompiler

from journal import entries, sql
from journal.entries import Status
from journal.fields import DatabaseNow
from journal.models import Entry
from sessions import holders, leases
from sessions.fences import NOTHING
from sessions.holders import Held, Lost
from sessions.models import ENDED, Session, Task
from sessions.models_leases import Lease
from sessions.models_state import Handoff
from sessions.origin import Origin, Repeated

_TRIES: Final = 50  # of those who ask at once, all but one find a candidate taken and look for the next
_UNFINISHED: Final = ("pending", "running", "blocked")


@dataclass(frozen=True)
class Wish:
    """What a worker can take. Empty `repository` and `labels` fit everything."""

    process: str
    kinds: tuple[str, ...]
    repository: str | None
    labels: Mapping[str, str]
    ttl_s: int


def claim(origin: Origin, wish: Wish) -> Lease | None:
    """The lease on what the worker gets, or None when nothing is ready. An orphaned session goes before a task of its
    priority, and of equals the older first. Raises Lost when this command claimed before and has lost it since.
    """
    _alone(origin)
    known = entries.look(origin.draft("lease.acquired"), origin.received_us)
    if known is not None:
        return _claimed_before(origin, wish, known.status, known.position)
    taken: set[UUID] = set()
    for _ in range(_TRIES):
        found = _next(origin, wish, taken)
        if found is None:
            return None
        subject = holders.of_task(found) if isinstance(found, Task) else holders.of_session(found.id)
        try:
            return leases.acquire(origin, subject, process=wish.process, ttl_s=wish.ttl_s)[0]
        except Held:
            taken.add(found.id)
    return None


def _alone(origin: Origin) -> None:
    """Wait for the same command where it is under way: what it is about to get is locked, and so passed over."""
    if connection.vendor == "postgresql":  # SQLite has one writer at a time
        digest = entries.keyed_digest("claim", str(origin.project), origin.source, origin.key)
        sql.rows("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK, int(digest[:8], 16) - 2**31])


_LOCK: Final = 0x636C  # keeps these advisory locks apart from others'


def _claimed_before(origin: Origin, wish: Wish, status: Status, position: int) -> Lease:
    if status is Status.CONFLICT:
        raise Repeated
    subject = Entry.objects.values_list("subject", flat=True).get(position=position)
    lease = holders.of_project(origin.project, subject or NOTHING)
    mine = (lease.opened_position, lease.agent_id, lease.process, lease.released_at_us)
    if mine != (position, origin.agent, wish.process, None):
        raise Lost(lease)
    return lease


def _next(origin: Origin, wish: Wish, taken: set[UUID]) -> Task | Session | None:
    """The most urgent candidate, its row locked; rows that another claim has locked are passed over."""
    finders: dict[str, Callable[[Origin, Wish], QuerySet[Any]]] = {"session": _orphans, "task": _tasks}
    ready = [find(origin, wish).exclude(id__in=taken) for kind, find in finders.items() if kind in wish.kinds]
    ready = [rows.order_by("-urgency", "opened_position") for rows in ready]
    if len(ready) > 1:
        urgent = [(rows.values_list("urgency", flat=True).first(), rows) for rows in ready]
        there = [(urgency, rows) for urgency, rows in urgent if urgency is not None]
        ready = [rows for _, rows in sorted(there, key=lambda one: -int(one[0]))]
    for rows in ready:
        skipping = rows.select_for_update(no_key=True, of=("self",), skip_locked=connection.vendor == "postgresql")
        found: Task | Session | None = skipping.first()
        if found is not None:
            return found
    return None


def _condition(column: str, template: str) -> Func:
    return Func(F(column), template=f"%(expressions)s {template}", output_field=BooleanField())


# As the index task_by_priority spells it: SQLite uses one of some rows only where it stands so in the query.
_IS_HANDED_OUT: Final = (
    _condition("state", "IN ('pending', 'running')"),
    _condition("created_mark", ">= '0'"),
    _condition("created_mark", "< '1'"),
)


def _tasks(origin: Origin, wish: Wish) -> QuerySet[Any]:
    of_task = Lease.objects.filter(task=OuterRef("pk"), kind="task")
    live = Q(released_at_us=None, expires_at_us__gt=DatabaseNow())
    others = Lease.objects.filter(live, session=OuterRef("session"), kind="session").exclude(
        agent=origin.agent, process=wish.process
    )
    below = Task.objects.filter(parent=OuterRef("pk"), state__in=_UNFINISHED)
    ran_out = Q(state="running") & Exists(of_task.filter(released_at_us=None))
    rows: QuerySet[Any] = Task.objects.filter(
        Q(state="pending") | ran_out,
        _speaks(origin, "session__"),
        ~Exists(of_task.filter(live)),
        ~Exists(others),
        ~Exists(below),
        *_IS_HANDED_OUT,
        project=origin.project,
    )
    found: QuerySet[Any] = _fitting(rows, "session__", wish).annotate(urgency=F("priority"))
    return found


def _orphans(origin: Origin, wish: Wish) -> QuerySet[Any]:
    unaccepted = Handoff.objects.filter(session=OuterRef("session"), accepted_at_us=None).exclude(written_position=None)
    orphaned = Lease.objects.filter(
        Q(released_at_us=None, expires_at_us__lte=DatabaseNow())
        | Q(released_at_us__gte=F("expires_at_us"))  # its holder had lost it before it was released
        | Q(Exists(unaccepted), released_at_us__isnull=False),
        project=origin.project,
        session=OuterRef("pk"),
        kind="session",
    )
    open_tasks = Task.objects.filter(session=OuterRef("pk"), state__in=_UNFINISHED).order_by("-priority")
    urgency = Coalesce(Subquery(open_tasks.values("priority")[:1]), Value(0))
    rows: QuerySet[Any] = Session.objects.filter(Exists(orphaned), _speaks(origin, ""), project=origin.project)
    found: QuerySet[Any] = _fitting(rows, "", wish).annotate(urgency=urgency)
    return found


def _speaks(origin: Origin, session: str) -> Q:
    """The sessions that the worker may speak for: its own, and those of agents of its team."""
    mine = Q(**{f"{session}agent": origin.agent})
    return mine | Q(**{f"{session}agent__team": origin.team}) if origin.team else mine


def _fitting(rows: QuerySet[Any], session: str, wish: Wish) -> QuerySet[Any]:
    """Those whose session goes on, was opened by command, and is on the repository and has the labels asked for."""
    rows = rows.exclude(**{f"{session}status__in": ENDED}).exclude(**{f"{session}mode": "reported"})
    if wish.repository is not None:
        rows = rows.filter(**{f"{session}repository__name": wish.repository})
    for name, value in sorted(wish.labels.items()):
        rows = rows.filter(HasLabel(f"{session}labels", name=name, value=value))
    return rows


class HasLabel(Func):
    """Whether labels hold a name with a value; a name may hold whatever a path of JSON would stumble over."""

    output_field = BooleanField()
    conditional = True

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """By the pairs of the object."""
        text, parameters = compiler.compile(self.source_expressions[0])
        found = f"EXISTS (SELECT 1 FROM json_each({text}) AS label WHERE label.key = %s AND label.value = %s)"
        return found, (*parameters, self.extra["name"], self.extra["value"])

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """By the operator that takes a name as it is."""
        text, parameters = compiler.compile(self.source_expressions[0])
        return f"({text} ->> %s) = %s", (*parameters, self.extra["name"], self.extra["value"])
