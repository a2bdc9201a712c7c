"""Effects of today by hour and state, and of the same weekday before. One query.

Finished hours come from the counts of the job (monitoring/effect_hours.py); effects above its
position are counted here. Nearly all effects happened without an error, so only the others are
read, by the partial indexes of their states; the rest of an hour is done.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from db import raw_sql
from display import display_state
from display.urls_of_rows import build_search_url
from monitoring.effect_hours import COUNTED_POSITION, HOUR_US, IS_OF_A_RANGE

DAY_US: Final = 24 * HOUR_US
WEEK_US: Final = 7 * DAY_US


class DayState(NamedTuple):
    """A group of today's effects: the query that finds it, and how it is drawn."""

    key: str
    query: str
    word: str
    style: str
    shape: str
    is_problem: bool = False


_LAWFUL: Final = "-is:violating"
# In the order of the stack, from below. The groups are disjoint and contain every effect.
DAY_STATES: Final = (
    DayState(
        "acknowledged",
        f"state:acknowledged -outcome:error {_LAWFUL}",
        "done",
        "is-done",
        "ack",
    ),
    DayState(
        "compensated",
        f"state:compensated {_LAWFUL}",
        "compensated",
        "is-compensated",
        "compensated",
    ),
    DayState(
        "superseded", f"state:superseded {_LAWFUL}", "superseded", "is-superseded", "superseded"
    ),
    DayState(
        "planned",
        f"state:planned -permission:denied {_LAWFUL}",
        "planned",
        "is-planned",
        "planned",
    ),
    DayState("dispatched", f"state:dispatched {_LAWFUL}", "running", "is-dispatched", "dispatched"),
    DayState("awaiting", f"state:awaiting {_LAWFUL}", "awaiting", "is-awaiting", "awaiting"),
    DayState(
        "denied",
        f"state:planned permission:denied {_LAWFUL}",
        "denied",
        "is-planned",
        "dash",
    ),
    DayState(
        "failed",
        f"{display_state.ENDED_IN_ERROR} {_LAWFUL}",
        "failed",
        "is-failed",
        "failed",
        is_problem=True,
    ),
    DayState("unknown", f"state:unknown {_LAWFUL}", "unknown", "is-unknown", "unknown", True),
    DayState("violating", "is:violating", "violation", "is-danger", "warn", True),
)
_HOUR: Final = f"received_us - received_us % {HOUR_US}"
# The lowest position that an effect of today can have.
_LOWEST: Final = (
    "coalesce((SELECT min(first_position) FROM monitoring_effecthour"
    f" WHERE project_id = %s AND hour_us >= %s), {COUNTED_POSITION} + 1)"
)
_SHOWN: Final = (
    "CASE WHEN outcome = 'unknown' AND state NOT IN ('compensated', 'superseded') THEN 'unknown'"
    " WHEN state = 'dispatched' AND deadline_us < %s THEN 'unknown'"
    " WHEN state = 'planned' AND permission = 'pending' THEN 'awaiting'"
    " WHEN state = 'planned' AND permission = 'denied' THEN 'denied' ELSE state END"
)
_SQL: Final = (
    "SELECT '', hour_us, effects FROM monitoring_effecthour WHERE project_id = %s"
    " AND (hour_us >= %s OR (hour_us >= %s AND hour_us < %s))"
    f" UNION ALL SELECT '', {_HOUR}, count(*) FROM ledger_effect"
    f" WHERE project_id = %s AND opened_position > {COUNTED_POSITION} AND {IS_OF_A_RANGE}"
    " GROUP BY 2"
    f" UNION ALL SELECT {_SHOWN}, {_HOUR}, count(*) FROM ledger_effect"
    " WHERE project_id = %s AND NOT (state = 'acknowledged') AND NOT violates"
    # Named one by one, so that SQLite reads them by their index and not every effect of the day.
    " AND state IN ('planned', 'dispatched', 'failed', 'compensated', 'superseded')"
    f" AND opened_position >= {_LOWEST} AND {IS_OF_A_RANGE} AND received_us >= %s GROUP BY 1, 2"
    " UNION ALL SELECT CASE WHEN outcome = 'unknown' THEN 'unknown' ELSE 'failed' END,"
    f" {_HOUR}, count(*) FROM ledger_effect"
    " WHERE project_id = %s AND outcome IN ('error', 'unknown')"
    f" AND state = 'acknowledged' AND NOT violates AND opened_position >= {_LOWEST}"
    f" AND {IS_OF_A_RANGE} AND received_us >= %s GROUP BY 1, 2"
    f" UNION ALL SELECT 'violating', {_HOUR}, count(*) FROM ledger_effect"
    f" WHERE project_id = %s AND violates AND opened_position >= {_LOWEST}"
    f" AND {IS_OF_A_RANGE} AND received_us >= %s GROUP BY 2"
)


@dataclass(slots=True)
class DayCounts:
    """Counts by (hour of the day, key of a state); `before` by hour, a week earlier."""

    day_us: int
    now_us: int
    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    before: Counter[int] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """The effects of today."""
        return self.counts.total()

    @property
    def total_url(self) -> str:
        """The search for the effects of today."""
        return self.find_url("")

    @property
    def hour(self) -> int:
        """The current hour of the day."""
        return (self.now_us - self.day_us) // HOUR_US

    @property
    def before_by_now(self) -> int:
        """The effects of the same weekday before, up to the begin of the current hour."""
        return sum(n for hour, n in self.before.items() if hour < self.hour)

    @property
    def before_url(self) -> str:
        """The search for `before_by_now`."""
        day = self.day_us - WEEK_US
        until = format_minute(day + self.hour * HOUR_US)
        return build_search_url(f"since:{format_minute(day)} until:{until}")

    @property
    def weekday(self) -> str:
        """The name of today's weekday."""
        return datetime.fromtimestamp(self.day_us / 1_000_000, UTC).strftime("%A")

    @property
    def hour_word(self) -> str:
        """The begin of the current hour as text."""
        return f"{self.hour:02d}:00"

    @property
    def date(self) -> str:
        """Today as text, such as Mon 23 Nov."""
        return datetime.fromtimestamp(self.day_us / 1_000_000, UTC).strftime("%a %-d %b")

    def find_hour_before_url(self, hour: int) -> str:
        """Return the search for the effects of an hour a week before."""
        since = self.day_us - WEEK_US + hour * HOUR_US
        times = f"since:{format_minute(since)} until:{format_minute(since + HOUR_US)}"
        return build_search_url(times)

    def sum_of_hour(self, hour: int) -> int:
        """Return the effects of an hour."""
        return sum(self.counts[hour, state.key] for state in DAY_STATES)

    def sum_of_state(self, key: str) -> int:
        """Return the effects of a state."""
        return sum(n for (_, name), n in self.counts.items() if name == key)

    def find_url(self, condition: str, hour: int | None = None) -> str:
        """Return the search for today's effects that meet a condition, in an hour or all day."""
        since = self.day_us + (hour or 0) * HOUR_US
        until = since + (DAY_US if hour is None else HOUR_US)
        times = f"since:{format_minute(since)} until:{format_minute(until)}"
        return build_search_url(f"{condition} {times}".strip())


def format_minute(us: int) -> str:
    """Format a moment as queries take it: 2126-01-01T09:00."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M")


def load_day_counts(project: UUID, now: int) -> DayCounts:
    """Count today's effects, and those of the same weekday before. One query."""
    day = DayCounts(now - now % DAY_US, now)
    identity, start, before = raw_sql.vendor_id(project), day.day_us, day.day_us - WEEK_US
    part = [identity, identity, start, start]
    rows = raw_sql.fetch_rows(
        _SQL, [identity, start, before, before + DAY_US, identity, now, *part, *part, *part]
    )
    hours: Counter[int] = Counter()
    for key, hour_us, count in rows:
        if key:
            day.counts[(hour_us - start) // HOUR_US, key] += count
        else:
            hours[hour_us] += count
    for hour_us, count in hours.items():
        if hour_us >= start:
            hour = (hour_us - start) // HOUR_US
            others = sum(n for (of, _), n in day.counts.items() if of == hour)
            day.counts[hour, "acknowledged"] += count - others
        elif before <= hour_us < before + DAY_US:
            day.before[(hour_us - before) // HOUR_US] += count
    return day
