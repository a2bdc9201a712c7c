"""Three clocks: server, agent, and agent corrected by the estimated skew.

The corrected clock is the agent clock plus the median difference to the server clock in the newest
entries of the session with both times. The difference includes network delay. The clock is not
corrected for sessions reported after the event, or when the differences vary widely.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Final
from uuid import UUID

from django.db import connection

from journal import imported_entries
from journal.models import Entry
from sessions.models import Session

CLOCKS: Final = ("server", "agent", "corrected")
CLOCK_LABELS: Final = {
    "server": "Server clock",
    "agent": "Agent clock",
    "corrected": "Corrected clock",
}
MAX_ENTRIES: Final = 500  # newest entries of a session that are read
MIN_SAMPLES: Final = 3  # entries with both times that a correction needs
SPREAD_US: Final = 60_000_000  # largest spread of the middle half of the differences
MAX_SESSIONS: Final = 12  # sessions whose clocks are corrected in one view


@dataclass(frozen=True, slots=True)
class Skew:
    """Correction of an agent clock: `shift_us`, or 0 with the reason in `why`."""

    shift_us: int
    facts: int  # entries with both times among those read
    why: str = ""


def load_skews(
    sessions: Sequence[Session], *, wanted: bool = True, upto: int | None = None
) -> dict[UUID, Skew]:
    """Return the skew of each of the first MAX_SESSIONS by id.

    One query, none unless `wanted`.

    Reads entries up to the position `upto`; None for all.
    """
    looked_at = sessions[:MAX_SESSIONS] if wanted else ()
    ahead = _load_differences([session.id for session in looked_at], upto) if looked_at else {}
    return {
        session.id: estimate_skew(ahead[session.id], session.mode == "reported")
        for session in looked_at
    }


def _load_differences(sessions: Sequence[UUID], upto: int | None) -> dict[UUID, list[int]]:
    """Return how far (µs) the server clock was ahead at the newest entries."""
    newest = Entry.objects.order_by("-position").values(
        "session", "received_us", "occurred_us", "source", "facts"
    )
    newest = newest.exclude(lane="claim")  # a claim has the time of another agent's clock
    newest = newest if upto is None else newest.filter(position__lte=upto)
    parts, parameters = list[str](), list[Any]()
    for session_id in sessions:
        text, values = newest.filter(session=session_id)[:MAX_ENTRIES].query.sql_with_params()
        parts.append(
            f"SELECT * FROM ({text}) AS of_one"
        )  # SQLite allows no LIMIT in a part of a UNION, except in a subquery
        parameters += values
    ahead: dict[UUID, list[int]] = {session_id: [] for session_id in sessions}
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(parts), parameters)
        for session, received, occurred, source, facts in cursor.fetchall():
            if occurred is not None:
                own = session if isinstance(session, UUID) else UUID(session)
                ahead[own].append(
                    imported_entries.original_received_us(source, facts, received) - occurred
                )
    return ahead


def corrected_us(told_us: int | None, skew: Skew | None) -> int | None:
    """Return an agent time by the corrected clock; None for None."""
    return told_us if told_us is None or skew is None else told_us + skew.shift_us


def load_agent_times(positions: Sequence[int]) -> dict[int, int]:
    """Return the agent times (µs) of entries that have one, by position. One query."""
    entries = Entry.objects.filter(position__in=positions, occurred_us__isnull=False)
    rows = entries.values_list("position", "occurred_us")
    return {position: occurred for position, occurred in rows if occurred is not None}


def estimate_skew(ahead: Sequence[int], afterwards: bool) -> Skew:
    """Return the skew of differences (µs); `afterwards`: reported after the event."""
    if afterwards:
        return Skew(
            0,
            len(ahead),
            "the session was reported after the event, so the difference is no clock skew",
        )
    if len(ahead) < MIN_SAMPLES:
        return Skew(0, len(ahead), "too few entries carry an agent time")
    low, _, high = quantiles(ahead, n=4)
    if high - low > SPREAD_US:
        return Skew(0, len(ahead), "the differences vary by more than a minute")
    return Skew(round(median(ahead)), len(ahead))
