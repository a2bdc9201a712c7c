"""Who holds what: leases as everybody may read them. They are written by sessions/leases.py alone."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Q, QuerySet

from journal.fields import DatabaseNow
from sessions.fences import lease_id
from sessions.models import Task
from sessions.models_leases import Lease

US: Final = 1_000_000
TTL_S: Final = 60
LEAST_TTL_S: Final = 5
MOST_TTL_S: Final = 3600
PROGRESS_WITHIN_S: Final = 900
# A holder beats twice within the time of its lease. Three beats overdue are then two times that after the last one.
DEAD_AFTER_TTLS: Final = 2
STATES: Final = ("live", "expired", "released")


class Subject(NamedTuple):
    """What a lease is on. `name` is the id of a session or task, or a resource's name."""

    kind: str
    name: str
    session: UUID | None = None
    task: UUID | None = None

    def identity(self, project: UUID) -> UUID:
        """The id of the lease on it, whether or not there is one yet."""
        return lease_id(project, self.kind, self.name)


def of_session(session: UUID) -> Subject:
    """A session as the subject of a lease."""
    return Subject("session", str(session), session)


def of_task(task: Task) -> Subject:
    """A task as the subject of a lease."""
    return Subject("task", str(task.id), task.session_id, task.id)


class Held(Exception):
    """Another process holds this lease; wait until it expires or is released, or work on something else."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(str(lease.id))
        self.lease = lease


class Lost(Exception):
    """The lease went to another holder, or was given up; stop this work, and acquire the lease again."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(str(lease.id))
        self.lease = lease


class Beat(NamedTuple):
    """What a holder says of one lease. `quiet_s` announces how long nothing may be heard; 0 takes that back."""

    lease: UUID
    epoch: int
    progress: str | None = None
    quiet_s: int | None = None


class Heard(NamedTuple):
    """A beat that counted. `silent_us` is how long nothing was heard before, where the book told of silence."""

    lease: UUID
    session: UUID | None
    epoch: int
    at_us: int
    expires_at_us: int
    progressed: bool
    silent_us: int | None


_NOW: Final = {"now_us": DatabaseNow()}


def read() -> QuerySet[Lease]:
    """Leases with their agents, and with the moment at which they are read, as `now_us`."""
    return Lease.objects.select_related("agent").annotate(**_NOW)


def standing(sessions: Iterable[UUID]) -> dict[UUID, Lease]:
    """The leases on these sessions, live or not, by session. One query."""
    found = read().filter(session__in=list(sessions), kind="session")
    return {lease.session_id: lease for lease in found if lease.session_id is not None}


def is_live(lease: Lease, now_us: int) -> bool:
    """True for a lease that nobody else may take without asking.

    What counts is the database's clock at the moment it was read, where it came from `read`, and `now_us` only else.
    """
    return lease.released_at_us is None and lease.expires_at_us > getattr(lease, "now_us", now_us)


def in_state(state: str) -> Q:
    """The leases that are live, expired or released now."""
    if state == "released":
        return Q(released_at_us__isnull=False)
    live = Q(expires_at_us__gt=DatabaseNow())
    return Q(released_at_us=None) & (live if state == "live" else ~live)


def told(lease: Lease, now_us: int) -> dict[str, Any]:
    """A lease in an answer, with the state that it has at `now_us` (see `is_live`); its times are the database's."""
    state = "released" if lease.released_at_us is not None else "live" if is_live(lease, now_us) else "expired"
    return {
        "id": str(lease.id),
        "handle": f"l_{lease.opened_position}",
        "kind": lease.kind,
        "subject": lease.subject,
        "session": str(lease.session_id) if lease.session_id else None,
        "holder": lease.agent.name,
        "process": lease.process,
        "epoch": lease.epoch,
        "ttl_s": lease.ttl_s,
        "expires_at_us": lease.expires_at_us,
        "beat_at_us": lease.beat_at_us,
        "progress_at_us": lease.progress_at_us,
        "quiet_until_us": lease.quiet_until_us,
        "released_at_us": lease.released_at_us,
        "state": state,
        "takeovers": lease.takeovers,
        "version": lease.version,
    }


def of_project(project: UUID, lease: UUID) -> Lease:
    """The lease of that id. Raises LookupError."""
    found = read().filter(project=project, id=lease).first()
    if found is None:
        raise LookupError(lease)
    return found
