"""Work claims: give a worker a lease on the most urgent free task or session.

A worker gets work in its own sessions and in those of its team. A task is ready when it is pending
(or running under an expired lease) and has no unfinished subtask, in an open session that no other
worker holds. A session is orphaned when its lease expired, was released by a person, or was
released with a handoff that nobody has accepted. Sessions and tasks that were only reported are
never handed out.
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

from db import raw_sql
from db.fields import DatabaseNow
from journal import entries
from journal.entries import AppendStatus, Origin, RepeatedKey
from journal.models import Entry
from sessions import lease_queries, leases
from sessions.lease_queries import LeaseHeld, LeaseLost
from sessions.models import ENDED, Handoff, Lease, Session, Task
from sessions.writers import NO_ID

# Of concurrent claims all but one find a candidate taken, and try the next.
_TRIES: Final = 50
_UNFINISHED: Final = ("pending", "running", "blocked")


@dataclass(frozen=True)
class ClaimCriteria:
    """What a worker can take. Empty `repository` and `labels` match everything."""

    process: str
    kinds: tuple[str, ...]
    repository: str | None
    labels: Mapping[str, str]
    ttl_s: int


def claim_next_work(origin: Origin, wish: ClaimCriteria) -> Lease | None:
    """Return the lease on the work that the worker gets; None when nothing is ready.

    At equal priority an orphaned session comes before a task, and older work before newer. Raises
    Lost when this same command claimed before and has lost the lease since.
    """
    _lock_command(origin)
    earlier = entries.compare_with_stored(origin.draft("lease.acquired"), origin.received_us)
    if earlier is not None:
        return _load_claimed_lease(origin, wish, earlier.status, earlier.position)
    taken: set[UUID] = set()
    for _ in range(_TRIES):
        candidate = _pick_candidate(origin, wish, taken)
        if candidate is None:
            return None
        subject = (
            lease_queries.task_as_lease_subject(candidate)
            if isinstance(candidate, Task)
            else lease_queries.session_as_lease_subject(candidate.id)
        )
        try:
            return leases.acquire_or_renew_lease(
                origin, subject, process=wish.process, ttl_s=wish.ttl_s
            )[0]
        except LeaseHeld:
            taken.add(candidate.id)
    return None


def _lock_command(origin: Origin) -> None:
    """Wait for the same command where it is still running.

    The rows that it is about to claim are locked, and would be skipped.
    """
    if connection.vendor == "postgresql":  # SQLite has one writer at a time
        digest = entries.keyed_digest("claim", str(origin.project), origin.source, origin.key)
        raw_sql.fetch_rows(
            "SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK, int(digest[:8], 16) - 2**31]
        )


_LOCK: Final = 0x636C  # namespace of these advisory locks


def _load_claimed_lease(
    origin: Origin, wish: ClaimCriteria, status: AppendStatus, position: int
) -> Lease:
    if status is AppendStatus.CONFLICT:
        raise RepeatedKey
    subject = Entry.objects.values_list("subject", flat=True).get(position=position)
    lease = lease_queries.load_lease(origin.project, subject or NO_ID)
    state = (lease.opened_position, lease.agent_id, lease.process, lease.released_at_us)
    if state != (position, origin.agent, wish.process, None):
        raise LeaseLost(lease)
    return lease


def _pick_candidate(origin: Origin, wish: ClaimCriteria, taken: set[UUID]) -> Task | Session | None:
    """Return the most urgent candidate, locked; skips rows locked by other claims."""
    finders: dict[str, Callable[[Origin, ClaimCriteria], QuerySet[Any]]] = {
        "session": _orphaned_sessions,
        "task": _ready_tasks,
    }
    ready = [
        find(origin, wish).exclude(id__in=taken)
        for kind, find in finders.items()
        if kind in wish.kinds
    ]
    ready = [rows.order_by("-urgency", "opened_position") for rows in ready]
    if len(ready) > 1:
        urgent = [(rows.values_list("urgency", flat=True).first(), rows) for rows in ready]
        nonempty = [(urgency, rows) for urgency, rows in urgent if urgency is not None]
        ready = [rows for _, rows in sorted(nonempty, key=lambda pair: -int(pair[0]))]
    for rows in ready:
        skipping = rows.select_for_update(
            no_key=True, of=("self",), skip_locked=connection.vendor == "postgresql"
        )
        candidate: Task | Session | None = skipping.first()
        if candidate is not None:
            return candidate
    return None


def _condition(column: str, template: str) -> Func:
    return Func(F(column), template=f"%(expressions)s {template}", output_field=BooleanField())


# The condition of the index task_by_priority: SQLite uses a partial index only for equal text.
_IS_HANDED_OUT: Final = (
    _condition("state", "IN ('pending', 'running')"),
    _condition("created_mark", ">= '0'"),
    _condition("created_mark", "< '1'"),
)


def _ready_tasks(origin: Origin, wish: ClaimCriteria) -> QuerySet[Any]:
    of_task = Lease.objects.filter(task=OuterRef("pk"), kind="task")
    live = Q(released_at_us=None, expires_at_us__gt=DatabaseNow())
    foreign = Lease.objects.filter(live, session=OuterRef("session"), kind="session").exclude(
        agent=origin.agent, process=wish.process
    )
    subtasks = Task.objects.filter(parent=OuterRef("pk"), state__in=_UNFINISHED)
    ran_out = Q(state="running") & Exists(of_task.filter(released_at_us=None))
    rows: QuerySet[Any] = Task.objects.filter(
        Q(state="pending") | ran_out,
        _is_own_or_team(origin, "session__"),
        ~Exists(of_task.filter(live)),
        ~Exists(foreign),
        ~Exists(subtasks),
        *_IS_HANDED_OUT,
        project=origin.project,
    )
    ready: QuerySet[Any] = _filter_by_criteria(rows, "session__", wish).annotate(
        urgency=F("priority")
    )
    return ready


def _orphaned_sessions(origin: Origin, wish: ClaimCriteria) -> QuerySet[Any]:
    unaccepted = Handoff.objects.filter(session=OuterRef("session"), accepted_at_us=None).exclude(
        written_position=None
    )
    orphaned = Lease.objects.filter(
        Q(released_at_us=None, expires_at_us__lte=DatabaseNow())
        | Q(released_at_us__gte=F("expires_at_us"))  # expired before it was released
        | Q(Exists(unaccepted), released_at_us__isnull=False),
        project=origin.project,
        session=OuterRef("pk"),
        kind="session",
    )
    open_tasks = Task.objects.filter(session=OuterRef("pk"), state__in=_UNFINISHED).order_by(
        "-priority"
    )
    urgency = Coalesce(Subquery(open_tasks.values("priority")[:1]), Value(0))
    rows: QuerySet[Any] = Session.objects.filter(
        Exists(orphaned), _is_own_or_team(origin, ""), project=origin.project
    )
    ready: QuerySet[Any] = _filter_by_criteria(rows, "", wish).annotate(urgency=urgency)
    return ready


def _is_own_or_team(origin: Origin, session: str) -> Q:
    """Return the condition for sessions of the worker or of its team."""
    own = Q(**{f"{session}agent": origin.agent})
    return own | Q(**{f"{session}agent__team": origin.team}) if origin.team else own


def _filter_by_criteria(rows: QuerySet[Any], session: str, wish: ClaimCriteria) -> QuerySet[Any]:
    """Keep rows of open sessions that match the repository and labels.

    Sessions that were only reported are excluded.
    """
    rows = rows.exclude(**{f"{session}status__in": ENDED}).exclude(**{f"{session}mode": "reported"})
    if wish.repository is not None:
        rows = rows.filter(**{f"{session}repository__name": wish.repository})
    for name, value in sorted(wish.labels.items()):
        rows = rows.filter(HasLabel(f"{session}labels", name=name, value=value))
    return rows


class HasLabel(Func):
    """Whether labels hold a name with a value. Names may contain any character."""

    output_field = BooleanField()
    conditional = True

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """Compare the pairs of the object."""
        text, parameters = compiler.compile(self.source_expressions[0])
        condition = "label.key = %s AND label.value = %s"
        text = f"EXISTS (SELECT 1 FROM json_each({text}) AS label WHERE {condition})"
        return text, (*parameters, self.extra["name"], self.extra["value"])

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        """Use the operator that takes a name literally."""
        text, parameters = compiler.compile(self.source_expressions[0])
        return f"({text} ->> %s) = %s", (*parameters, self.extra["name"], self.extra["value"])
