"""Reads single values: moments, lengths of time, numbers. Each says in a sentence what it takes; nothing is guessed."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from inquiry.query.tree import Fault, One

US: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AGE: Final = re.compile(r"([0-9]{1,6})(s|min|m|h|d|w)", re.IGNORECASE)
_LENGTH: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(us|ms|s|min|m|h|d|w)", re.IGNORECASE)
_UNITS: Final = {"us": 1, "ms": 1_000, "s": US, "m": 60 * US, "min": 60 * US, "h": 3600 * US, "d": 86_400 * US}
_UNIT_US: Final = _UNITS | {"w": 7 * 86_400 * US}
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
LATEST_US: Final = 2**62

AGES: Final = "an age as 30m, 24h or 7d"
MOMENTS: Final = f"a time as 2026-11-20, 2026-11-20T09:00 (UTC), or {AGES}"


class Moment(NamedTuple):
    """The microseconds [from_us, to_us) that a written moment covers: a day, a minute, a second, or one of them."""

    from_us: int
    to_us: int
    is_age: bool = False


def moment(one: One, now_us: int) -> Moment:
    """Read a moment; an age is the instant so long before `now_us`. Raises Fault."""
    text = one.text.strip()
    age = _AGE.fullmatch(text)
    if age is not None:
        at = max(now_us - int(age[1]) * _UNIT_US[age[2].lower()], 0)  # 999999w began before there were years
        return Moment(at, at + 1, is_age=True)
    day, time = _DAY.fullmatch(text), _TIME.fullmatch(text)
    try:
        if day is not None:
            at = _us(datetime.fromisoformat(text).replace(tzinfo=UTC))
            return Moment(at, at + 86_400 * US)
        if time is not None:
            read = datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
            at = _us(read if read.tzinfo else read.replace(tzinfo=UTC))
            finest = 1 if time[4] else US if time[3] else 60 * US
            return Moment(at, at + finest)
    except (ValueError, OverflowError):
        pass
    raise Fault(one.at, len(one.text), f"“{one.text[:40]}” is no moment; it is {MOMENTS}.")


def is_age(one: One) -> bool:
    """Whether a moment was written as an age: 30m, 24h, 7d."""
    return _AGE.fullmatch(one.text.strip()) is not None


def length(one: One) -> int:
    """Read a length of time (500ms, 2s, 10m, 1.5h, 7d) as microseconds. Raises Fault."""
    found = _LENGTH.fullmatch(one.text.strip())
    if found is None:
        raise Fault(one.at, len(one.text), f"“{one.text[:40]}” is no length of time; it is 500ms, 2s, 10m, 1.5h or 7d.")
    return round(float(found[1]) * _UNIT_US[found[2].lower()])


def whole(one: One) -> int:
    """Read a whole number. Raises Fault."""
    if not _WHOLE.fullmatch(one.text.strip()):
        raise Fault(one.at, len(one.text), f"“{one.text[:40]}” is no whole number.")
    return int(one.text)


def _us(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
