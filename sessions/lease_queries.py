"""Lease queries, and what a lease is on. Only sessions/leases.py writes."""

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from django.db.models import Q, QuerySet

from db.fields import DatabaseNow
from sessions.models import Lease, Task
from sessions.writers import derive_lease_id

US: Final = 1_000_000
DEFAULT_TTL_S: Final = 60
PROGRESS_WITHIN_S: Final = 900
# A holder sends two heartbeats per TTL, so two TTLs are three heartbeats overdue.
DEAD_AFTER_TTLS: Final = 2
LEASE_STATES: Final = ("live", "expired", "released")


class LeaseSubject(NamedTuple):
    """What a lease is on. `name` is a session's or task's id, or a resource's name."""

    kind: str
    name: str
    session: UUID | None = None
    task: UUID | None = None

    def identity(self, project: UUID) -> UUID:
        """Return the id of the lease on this subject, stored or not."""
        return derive_lease_id(project, self.kind, self.name)


def session_as_lease_subject(session: UUID) -> LeaseSubject:
    """Return a session as the subject of a lease."""
    return LeaseSubject("session", str(session), session)


def task_as_lease_subject(task: Task) -> LeaseSubject:
    """Return a task as the subject of a lease."""
    return LeaseSubject("task", str(task.id), task.session_id, task.id)


class LeaseHeld(Exception):
    """Another process holds this lease."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(str(lease.id))
        self.lease = lease


class LeaseLost(Exception):
    """The agent no longer holds the lease, or never did."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(str(lease.id))
        self.lease = lease


class Heartbeat(NamedTuple):
    """A heartbeat on one lease.

    `quiet_s` announces how long no heartbeat will come; 0 withdraws the announcement.
    """

    lease: UUID
    epoch: int
    progress: str | None = None
    quiet_s: int | None = None


class AppliedHeartbeat(NamedTuple):
    """A heartbeat that counted; `silent_us` is the journalled silence it ended."""

    lease: UUID
    session: UUID | None
    epoch: int
    at_us: int
    expires_at_us: int
    progressed: bool
    silent_us: int | None


_NOW: Final = {"now_us": DatabaseNow()}


def query_leases() -> QuerySet[Lease]:
    """Return leases with their agents and the database's time, as `now_us`."""
    return Lease.objects.select_related("agent").annotate(**_NOW)


def load_session_leases(sessions: Iterable[UUID]) -> dict[UUID, Lease]:
    """Return the leases on these sessions, live or not, by session. One query."""
    leases = query_leases().filter(session__in=list(sessions), kind="session")
    return {lease.session_id: lease for lease in leases if lease.session_id is not None}


def is_lease_live(lease: Lease, now_us: int) -> bool:
    """Return True for a lease that others cannot take over without `takeover`.

    Compares with the database's time of the query where `query_leases` loaded the lease, else with
    `now_us`.
    """
    return lease.released_at_us is None and lease.expires_at_us > getattr(lease, "now_us", now_us)


def build_lease_state_filter(state: str) -> Q:
    """Return the condition for leases that are live, expired or released now."""
    if state == "released":
        return Q(released_at_us__isnull=False)
    live = Q(expires_at_us__gt=DatabaseNow())
    return Q(released_at_us=None) & (live if state == "live" else ~live)


def load_lease(project: UUID, lease: UUID) -> Lease:
    """Return a project's lease by id. Raises LookupError."""
    row = query_leases().filter(project=project, id=lease).first()
    if row is None:
        raise LookupError(lease)
    return row
