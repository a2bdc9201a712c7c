"""Working hours, as a policy tells them: what was asked outside of them is marked, and never judged by it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from approvals.models import PolicySet
from approvals.states import US

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_KEPT: Final = 64  # sets whose hours a process remembers
_known: dict[UUID, "Hours | None"] = {}


@dataclass(frozen=True, slots=True)
class Hours:
    """The days of a week that are worked, and from when until when: minutes since midnight where `zone` is."""

    zone: str
    days: tuple[str, ...]
    begin: int
    end: int

    @classmethod
    def of(cls, rules: Mapping[str, Any]) -> "Hours | None":
        """The hours in a set's rules as approvals/document.py reads them; None where none are told."""
        told = rules.get("hours")
        if told is None:
            return None
        return cls(told["zone"], tuple(told["days"]), minutes(told["from"]), minutes(told["to"]))

    def outside(self, at_us: int) -> str:
        """The local day and time of a moment that lies outside, such as "Sat 02:14"; empty for one within."""
        at = datetime.fromtimestamp(at_us // US, UTC).astimezone(ZoneInfo(self.zone))
        within = (
            DAYS[at.weekday()] in self.days and self.begin <= at.hour * 60 + at.minute < self.end
        )
        return "" if within else f"{DAYS[at.weekday()].capitalize()} {at:%H:%M}"

    def __str__(self) -> str:
        first = DAYS.index(self.days[0])
        in_a_row = len(self.days) > 2 and self.days == DAYS[first : first + len(self.days)]
        named = [day.capitalize() for day in self.days]
        days = f"{named[0]} to {named[-1]}" if in_a_row else ", ".join(named)
        return f"{days}, {_clock(self.begin)} to {_clock(self.end)}, {self.zone}"


def minutes(clock: str) -> int:
    """Minutes since midnight of HH:MM; 24:00 is the end of the day."""
    hour, _, minute = clock.partition(":")
    return int(hour) * 60 + int(minute)


def of_sets(policy_sets: Iterable[UUID | None]) -> dict[UUID, Hours | None]:
    """The hours of sets, by id. They never change once loaded: one query for those that this process does not know."""
    wanted = {one for one in policy_sets if one is not None}
    known = dict(_known)  # another thread may empty it meanwhile
    found = {one: known[one] for one in wanted & known.keys()}
    unknown = wanted - found.keys()
    if unknown:
        told = PolicySet.objects.filter(id__in=unknown).values_list("id", "rules__hours")
        read = {identity: Hours.of({"hours": hours}) for identity, hours in told}
        if len(_known) >= _KEPT:
            _known.clear()
        _known.update(read)
        found |= read
    return found


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"
