"""Shown status of a session: one function for lists, pages, resume and the stuck board.

A stored status is the worker's last report. A leased session with an expired lease is not running,
whatever it reported. Gatebook cannot know whether the worker is dead, so the status names what is
known: no heartbeat keeps the lease.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

from django.db.models import Exists, Max, OuterRef, Q, Subquery

from db.clock import now_us
from display import display_state
from sessions.models import Lease, Session

WORKER_GONE: Final = "worker gone"  # the lease expired without a new holder
NO_WORKER: Final = "no worker"  # the lease was released without a new holder
NOT_STARTED: Final = "not started"  # no lease was taken in time
WORKERLESS: Final = (WORKER_GONE, NO_WORKER, NOT_STARTED)
_AT_WORK: Final = ("running", "waiting")


class LeaseDeadlines(Protocol):
    """The deadlines of a lease, in microseconds."""

    @property
    def expires_at_us(self) -> int: ...
    @property
    def released_at_us(self) -> int | None: ...
    @property
    def quiet_until_us(self) -> int | None: ...


def shown_liveness(
    status: str,
    mode: str,
    start_by_us: int | None,
    lease: LeaseDeadlines | None,
    helped: bool,
    now: int,
) -> str:
    """Return the shown status at `now`. `helped`: a worker holds the lease of one of its tasks."""
    if mode == "reported" and status == "running":
        return display_state.END_NOT_REPORTED
    if mode != "leased" or status not in _AT_WORK or helped:
        return status
    if lease is None:
        return NOT_STARTED if start_by_us is not None and start_by_us < now else status
    if lease.released_at_us is not None:
        return (
            NO_WORKER if status == "running" else status
        )  # waiting sessions may release the lease
    quiet = lease.quiet_until_us is not None and lease.quiet_until_us >= now
    return status if lease.expires_at_us >= now or quiet else WORKER_GONE


def attach_liveness(sessions: Iterable[Session]) -> None:
    """Set `liveness` of each session to its shown status. At most one query."""
    every = list(sessions)
    leased = [
        session.id for session in every if session.mode == "leased" and session.status in _AT_WORK
    ]
    held: dict[Any, Lease] = {}
    helped: dict[Any, int] = {}
    for lease in (
        Lease.objects.filter(session__in=leased, kind__in=("session", "task")) if leased else ()
    ):
        if lease.kind == "session":
            held[lease.session_id] = lease
        elif lease.released_at_us is None:
            helped[lease.session_id] = max(lease.expires_at_us, helped.get(lease.session_id, 0))
    now = now_us()
    for session in every:
        helps = helped.get(session.id, 0) >= now
        value = shown_liveness(
            session.status, session.mode, session.start_by_us, held.get(session.id), helps, now
        )
        session.liveness = value  # type: ignore[attr-defined]


def get_liveness(session: Session) -> str:
    """Return the shown status: attached, from `liveness_columns`, or as stored if no lease was
    loaded."""
    attached: str = getattr(session, "liveness", "")
    if attached or not hasattr(session, "helped_until_us"):
        return attached or display_state.derive_shown_status(session)
    row: Any = session
    held = None
    if row.lease_expires_at_us is not None:
        held = _LeaseColumns(
            row.lease_expires_at_us, row.lease_released_at_us, row.lease_quiet_until_us
        )
    now = now_us()
    helped = (row.helped_until_us or 0) >= now
    return shown_liveness(row.status, row.mode, row.start_by_us, held, helped, now)


class _LeaseColumns(NamedTuple):
    expires_at_us: int
    released_at_us: int | None
    quiet_until_us: int | None


def liveness_columns() -> dict[str, Subquery]:
    """Return annotations for a session query that `get_liveness` needs."""
    leases = Lease.objects.filter(session=OuterRef("id"))
    held = leases.filter(kind="session")
    tasks = leases.filter(kind="task", released_at_us__isnull=True).order_by()
    until = tasks.values("session").annotate(until=Max("expires_at_us")).values("until")
    read = {f"lease_{name}": Subquery(held.values(name)[:1]) for name in _LeaseColumns._fields}
    return {**read, "helped_until_us": Subquery(until)}


def worker_gone_condition(now: int) -> Q:
    """Return the condition of sessions shown as WORKER_GONE."""
    leases = Lease.objects.filter(session=OuterRef("id"), released_at_us__isnull=True)
    quiet = Q(quiet_until_us__gte=now)
    over = leases.filter(kind="session", expires_at_us__lt=now).exclude(quiet)
    helps = leases.filter(kind="task", expires_at_us__gte=now)
    return Q(mode="leased", status__in=_AT_WORK) & Exists(over) & ~Exists(helps)
