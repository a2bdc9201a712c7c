"""Parse single values: times, lengths of time and numbers. Nothing is guessed."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from investigation.query.parser.ast import QueryError, QueryValue

US: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AGE: Final = re.compile(r"([0-9]{1,6})(s|min|m|h|d|w)", re.IGNORECASE)
_LENGTH: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(us|ms|s|min|m|h|d|w)", re.IGNORECASE)
_UNITS: Final = {
    "us": 1,
    "ms": 1_000,
    "s": US,
    "m": 60 * US,
    "min": 60 * US,
    "h": 3600 * US,
    "d": 86_400 * US,
}
_UNIT_US: Final = _UNITS | {"w": 7 * 86_400 * US}
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(\.[0-9]{1,6})?"
    r"(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")

AGES: Final = "an age such as 30m, 24h or 7d"
MOMENTS: Final = f"a time such as 2026-11-20 or 2026-11-20T09:00 (UTC), or {AGES}"


class TimeRange(NamedTuple):
    """The microseconds [from_us, to_us) that a written time covers."""

    from_us: int
    to_us: int
    is_age: bool = False


def parse_time(value: QueryValue, now_us: int) -> TimeRange:
    """Parse a time; an age is the instant that long before `now_us`. Raises QueryError."""
    text = value.text.strip()
    age = _AGE.fullmatch(text)
    if age is not None:
        # 999999w would start before year 1.
        at = max(now_us - int(age[1]) * _UNIT_US[age[2].lower()], 0)
        return TimeRange(at, at + 1, is_age=True)
    day, time = _DAY.fullmatch(text), _TIME.fullmatch(text)
    try:
        if day is not None:
            at = _us(datetime.fromisoformat(text).replace(tzinfo=UTC))
            return TimeRange(at, at + 86_400 * US)
        if time is not None:
            parsed = datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
            at = _us(parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC))
            precision_us = 1 if time[4] else US if time[3] else 60 * US
            return TimeRange(at, at + precision_us)
    except (ValueError, OverflowError):
        pass
    raise QueryError(
        value.at, len(value.text), f"“{value.text[:40]}” is not a time. Use {MOMENTS}."
    )


def is_written_as_age(value: QueryValue) -> bool:
    """Return True if a time was written as an age: 30m, 24h, 7d."""
    return _AGE.fullmatch(value.text.strip()) is not None


def parse_duration(value: QueryValue) -> int:
    """Parse a length of time (500ms, 2s, 10m, 1.5h, 7d) as microseconds. Raises QueryError."""
    match = _LENGTH.fullmatch(value.text.strip())
    if match is None:
        raise QueryError(
            value.at,
            len(value.text),
            f"“{value.text[:40]}” is not a length of time. Write 500ms, 2s, 10m, 1.5h or 7d.",
        )
    return round(float(match[1]) * _UNIT_US[match[2].lower()])


def parse_number_value(value: QueryValue) -> int:
    """Parse a whole number. Raises QueryError."""
    if not _WHOLE.fullmatch(value.text.strip()):
        raise QueryError(value.at, len(value.text), f"“{value.text[:40]}” is not a whole number.")
    return int(value.text)


def _us(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
