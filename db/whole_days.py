"""Periods of whole UTC days that end now. Their first day is also a bound that searches take."""

from datetime import UTC, datetime
from typing import Final, NamedTuple

DAY_US: Final = 86_400_000_000
RANGES: Final = (7, 30, 90)  # days that pages offer
DEFAULT_DAYS: Final = 30


class DayPeriod(NamedTuple):
    """Today and the days before, in microseconds; `days` counts today."""

    since_us: int
    now_us: int
    days: int

    @property
    def text(self) -> str:
        """The condition of a search for the same period."""
        return f"since:{format_day(self.since_us)}"

    @property
    def before_us(self) -> int:
        """The start of the period of the same length before."""
        return self.since_us - self.days * DAY_US


def build_period(now_us: int, days: int = DEFAULT_DAYS) -> DayPeriod:
    """Return the period of `days` days that ends now."""
    return DayPeriod(find_day_start(now_us) - (days - 1) * DAY_US, now_us, days)


def parse_days(text: str) -> int:
    """Return one of RANGES, the default for any other text."""
    return next((days for days in RANGES if str(days) == text), DEFAULT_DAYS)


def find_day_start(us: int) -> int:
    """Return the start of the UTC day of a moment."""
    return us - us % DAY_US


def format_day(us: int) -> str:
    """Format a moment as its UTC day, 2026-11-23."""
    return datetime.fromtimestamp(us / 1_000_000, UTC).date().isoformat()
