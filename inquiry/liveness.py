"""Whether anybody works on a session: one function decides the word for lists, pages, resume and the board.

A stored status is what a worker reported last. A leased session whose lease is over does not run, whatever it says;
whether the worker is dead nobody can know, so the word says what is known: no heartbeat keeps its lease.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

from django.db.models import Exists, Max, OuterRef, Q, Subquery

from inquiry import shown
from journal.clock import now_us
from sessions.models import Session
from sessions.models_leases import Lease

GONE: Final = "worker gone"  # the lease expired, and nobody took it
NONE: Final = "no worker"  # the lease was released, and nobody took it
UNSTARTED: Final = "not started"  # nobody took a lease in time
WORDS: Final = (GONE, NONE, UNSTARTED)
_AT_WORK: Final = ("running", "waiting")


class LeaseLike(Protocol):
    """What decides of a lease; microseconds."""

    @property
    def expires_at_us(self) -> int: ...
    @property
    def released_at_us(self) -> int | None: ...
    @property
    def quiet_until_us(self) -> int | None: ...


def word(
    status: str, mode: str, start_by_us: int | None, lease: LeaseLike | None, helped: bool, now: int
) -> str:
    """The word for a status as it was stored, at `now`. `helped`: a worker holds the lease of one of its tasks."""
    if mode == "reported" and status == "running":
        return shown.NO_END
    if mode != "leased" or status not in _AT_WORK or helped:
        return status
    if lease is None:
        return UNSTARTED if start_by_us is not None and start_by_us < now else status
    if lease.released_at_us is not None:
        return NONE if status == "running" else status  # who waits may give its lease up
    quiet = lease.quiet_until_us is not None and lease.quiet_until_us >= now
    return status if lease.expires_at_us >= now or quiet else GONE


def attach(sessions: Iterable[Session]) -> None:
    """Give each of these sessions its word as `liveness`. One query, none where no lease could decide."""
    every = list(sessions)
    asked = [one.id for one in every if one.mode == "leased" and one.status in _AT_WORK]
    held: dict[Any, Lease] = {}
    helped: dict[Any, int] = {}
    for lease in (
        Lease.objects.filter(session__in=asked, kind__in=("session", "task")) if asked else ()
    ):
        if lease.kind == "session":
            held[lease.session_id] = lease
        elif lease.released_at_us is None:
            helped[lease.session_id] = max(lease.expires_at_us, helped.get(lease.session_id, 0))
    now = now_us()
    for one in every:
        helps = helped.get(one.id, 0) >= now
        one.liveness = word(one.status, one.mode, one.start_by_us, held.get(one.id), helps, now)  # type: ignore[attr-defined]


def of(session: Session) -> str:
    """The word for a session: attached, or by its `columns`; what is stored where no lease was read."""
    attached: str = getattr(session, "liveness", "")
    if attached or not hasattr(session, "helped_until_us"):
        return attached or shown.shown_status(session)
    one: Any = session
    held = None
    if one.lease_expires_at_us is not None:
        held = _Held(one.lease_expires_at_us, one.lease_released_at_us, one.lease_quiet_until_us)
    now = now_us()
    helped = (one.helped_until_us or 0) >= now
    return word(one.status, one.mode, one.start_by_us, held, helped, now)


class _Held(NamedTuple):
    expires_at_us: int
    released_at_us: int | None
    quiet_until_us: int | None


def columns() -> dict[str, Subquery]:
    """What decides the word, for a query of sessions that is read anyway."""
    leases = Lease.objects.filter(session=OuterRef("id"))
    held = leases.filter(kind="session")
    tasks = leases.filter(kind="task", released_at_us__isnull=True).order_by()
    until = tasks.values("session").annotate(until=Max("expires_at_us")).values("until")
    read = {f"lease_{name}": Subquery(held.values(name)[:1]) for name in _Held._fields}
    return {**read, "helped_until_us": Subquery(until)}


def gone(now: int) -> Q:
    """The condition of sessions that are shown as GONE."""
    leases = Lease.objects.filter(session=OuterRef("id"), released_at_us__isnull=True)
    quiet = Q(quiet_until_us__gte=now)
    over = leases.filter(kind="session", expires_at_us__lt=now).exclude(quiet)
    helps = leases.filter(kind="task", expires_at_us__gte=now)
    return Q(mode="leased", status__in=_AT_WORK) & Exists(over) & ~Exists(helps)
