"""Working hours of a policy: requests outside of them are only flagged."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from approvals.gates.statuses import US
from approvals.models import PolicySet

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MAX_CACHED_SETS: Final = 64  # sets cached by a process
_hours_cache: dict[UUID, "WorkingHours | None"] = {}


@dataclass(frozen=True, slots=True)
class WorkingHours:
    """Working days and times; `begin` and `end` are minutes since midnight in `zone`."""

    zone: str
    days: tuple[str, ...]
    begin: int
    end: int

    @classmethod
    def of(cls, rules: Mapping[str, Any]) -> "WorkingHours | None":
        """Return the hours in rules read by approvals/policies/policies_yaml.py, or None."""
        hours = rules.get("hours")
        if hours is None:
            return None
        return cls(
            hours["zone"],
            tuple(hours["days"]),
            parse_clock_time(hours["from"]),
            parse_clock_time(hours["to"]),
        )

    def outside(self, at_us: int) -> str:
        """Return local day and time, such as "Sat 02:14", of a moment outside; else empty."""
        at = datetime.fromtimestamp(at_us // US, UTC).astimezone(ZoneInfo(self.zone))
        within = (
            WEEKDAYS[at.weekday()] in self.days
            and self.begin <= at.hour * 60 + at.minute < self.end
        )
        return "" if within else f"{WEEKDAYS[at.weekday()].capitalize()} {at:%H:%M}"

    def __str__(self) -> str:
        first = WEEKDAYS.index(self.days[0])
        in_a_row = len(self.days) > 2 and self.days == WEEKDAYS[first : first + len(self.days)]
        named = [day.capitalize() for day in self.days]
        days = f"{named[0]} to {named[-1]}" if in_a_row else ", ".join(named)
        return f"{days}, {_format_clock(self.begin)} to {_format_clock(self.end)}, {self.zone}"


def parse_clock_time(clock: str) -> int:
    """Return minutes since midnight of HH:MM; 24:00 is the end of the day."""
    hour, _, minute = clock.partition(":")
    return int(hour) * 60 + int(minute)


def load_working_hours(policy_sets: Iterable[UUID | None]) -> dict[UUID, WorkingHours | None]:
    """Return the hours of policy sets by id, cached. At most one query."""
    set_ids = {set_id for set_id in policy_sets if set_id is not None}
    cache = dict(_hours_cache)  # another thread may clear the cache
    hours_by_set = {set_id: cache[set_id] for set_id in set_ids & cache.keys()}
    unknown = set_ids - hours_by_set.keys()
    if unknown:
        rows = PolicySet.objects.filter(id__in=unknown).values_list("id", "rules__hours")
        loaded = {identity: WorkingHours.of({"hours": hours}) for identity, hours in rows}
        if len(_hours_cache) >= _MAX_CACHED_SETS:
            _hours_cache.clear()
        _hours_cache.update(loaded)
        hours_by_set |= loaded
    return hours_by_set


def _format_clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"
