"""Three clocks: the server's, which rules use; the producer's, as it was told; and the producer's as corrected.

The corrected clock is the producer's, shifted by the median of how far the server's was ahead in the newest facts of
the session that carry both times. The way a report took is part of it. Of a session that was reported after the event
that difference is no skew: its clock is left as it was told, and so is one whose differences lie wide apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Final
from uuid import UUID

from django.db import connection

from journal import brought
from journal.models import Entry
from sessions.models import Session

CLOCKS: Final = ("server", "agent", "corrected")
NAMES: Final = {"server": "Server’s clock", "agent": "Agent’s clock", "corrected": "Corrected clock"}
FACTS: Final = 500  # the newest of a session that are looked at
LEAST: Final = 3  # facts with both times, below which nothing is corrected
SPREAD_US: Final = 60_000_000  # within which the middle half of the differences must lie
SESSIONS: Final = 12  # whose clocks are corrected in one view


@dataclass(frozen=True, slots=True)
class Skew:
    """How the producers' clock of a session is corrected: by `shift_us` (0 where it is not, and `why` says so)."""

    shift_us: int
    facts: int  # with both times, among those that were looked at
    why: str = ""


def skews(sessions: Sequence[Session], *, wanted: bool = True, upto: int | None = None) -> dict[UUID, Skew]:
    """The skew of each of the first SESSIONS, by id; one query, none unless it is `wanted`.

    By what stands up to the position `upto`; None for all there is.
    """
    looked_at = sessions[:SESSIONS] if wanted else ()
    ahead = _ahead([one.id for one in looked_at], upto) if looked_at else {}
    return {one.id: of(ahead[one.id], one.mode == "reported") for one in looked_at}


def _ahead(sessions: Sequence[UUID], upto: int | None) -> dict[UUID, list[int]]:
    """How far (µs) the server's clock was ahead in the newest facts of each that carry both times."""
    newest = Entry.objects.order_by("-position").values("session", "received_us", "occurred_us", "source", "facts")
    newest = newest.exclude(lane="claim")  # told by another agent's clock
    newest = newest if upto is None else newest.filter(position__lte=upto)
    parts, parameters = list[str](), list[Any]()
    for one in sessions:
        text, given = newest.filter(session=one)[:FACTS].query.sql_with_params()
        parts.append(f"SELECT * FROM ({text}) AS of_one")  # SQLite takes no part with a limit of its own
        parameters += given
    ahead: dict[UUID, list[int]] = {one: [] for one in sessions}
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(parts), parameters)
        for session, received, occurred, source, facts in cursor.fetchall():
            if occurred is not None:
                own = session if isinstance(session, UUID) else UUID(session)
                ahead[own].append(brought.received_us(source, facts, received) - occurred)
    return ahead


def corrected(told_us: int | None, skew: Skew | None) -> int | None:
    """A producer's time by the corrected clock; None for none."""
    return told_us if told_us is None or skew is None else told_us + skew.shift_us


def told(positions: Sequence[int]) -> dict[int, int]:
    """The producer's time (µs) of the entries at `positions` that carry one. One query."""
    entries = Entry.objects.filter(position__in=positions, occurred_us__isnull=False)
    rows = entries.values_list("position", "occurred_us")
    return {position: occurred for position, occurred in rows if occurred is not None}


def of(ahead: Sequence[int], afterwards: bool) -> Skew:
    """The skew by how far (µs) the server's clock was ahead in each fact; `afterwards`: it was told after the event."""
    if afterwards:
        return Skew(0, len(ahead), "it was reported after the event, so that the difference of the clocks is no skew")
    if len(ahead) < LEAST:
        return Skew(0, len(ahead), "too few of its facts carry a time of their own")
    low, _, high = quantiles(ahead, n=4)
    if high - low > SPREAD_US:
        return Skew(0, len(ahead), "its differences lie more than a minute apart")
    return Skew(round(median(ahead)), len(ahead))
