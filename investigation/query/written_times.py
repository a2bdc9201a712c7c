"""Times and lengths of time as people write them, and how a query writes them. All in UTC."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_UNITS: Final = {
    "ms": "ms|msecs?|milliseconds?",
    "s": "s|secs?|seconds?",
    "m": "m|mins?|minutes?",
    "h": "h|hrs?|hours?",
    "d": "d|days?",
    "w": "w|wks?|weeks?",
    "month": "months?",
    "y": "y|yrs?|years?",
}
_UNIT: Final = "|".join(f"(?P<{unit}>{words})" for unit, words in _UNITS.items())
_DAYS: Final = {"month": 30, "y": 365}  # Units that a query does not have.
_GAP: Final = r"[\s_-]*"
_LENGTH: Final = rf"(?P<number>\d{{1,5}}(?:\.\d{{1,2}})?){_GAP}(?:{_UNIT})"
_END: Final = r"(?![^\s()\[\]|\",])"
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_AGE: Final = re.compile(
    rf"(?:the{_GAP})?(?:now{_GAP}-|-)?(?:(?:last|past|previous){_GAP})?{_LENGTH}"
    rf"(?:{_GAP}ago)?{_END}",
    re.IGNORECASE,
)
_LAST_UNIT: Final = re.compile(
    rf"(?:the{_GAP})?(?:last|past|previous){_GAP}(?:{_UNIT}){_END}", re.IGNORECASE
)
_WORD: Final = re.compile(
    rf"(?:last{_GAP})?(today|yesterday|now|this{_GAP}week|{'|'.join(_WEEKDAYS)}){_END}",
    re.IGNORECASE,
)
_DATE: Final = re.compile(
    r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})"
    rf"(?:[\sT]+(\d{{1,2}}):(\d{{2}})(:\d{{2}})?(?:\s?(Z|UTC))?)?{_END}",
    re.IGNORECASE,
)
_DURATION: Final = re.compile(rf"{_LENGTH}{_END}", re.IGNORECASE)

Written = tuple[int, str]  # Number of characters read, and what a query writes for them.


def rewrite_time(text: str, now_us: int) -> Written | None:
    """Read a time at the beginning of `text`, such as “last week”; return None without one."""
    age = _AGE.match(text) or _LAST_UNIT.match(text)
    if age is not None:
        written = _format_length(age, smallest_unit="s")
        return (age.end(), written) if written else None
    word = _WORD.match(text)
    if word is not None:
        name = re.sub(_GAP, "", word[1].lower())
        today = datetime.fromtimestamp(now_us / 1_000_000, UTC)
        if name == "now":
            return word.end(), "0m"
        ago = {"today": 0, "yesterday": 1, "thisweek": today.weekday()}.get(name)
        if ago is None:
            ago = (today.weekday() - _WEEKDAYS.index(name)) % 7 or 7
        return word.end(), f"{today - timedelta(days=ago):%Y-%m-%d}"
    date = _DATE.match(text)
    if date is None:
        return None
    year, month, day, hour, minute, second, _ = date.groups()
    written = f"{year}-{month:0>2}-{day:0>2}"
    written += f"T{hour:0>2}:{minute}{second or ''}Z" if hour else ""
    return date.end(), written


def rewrite_duration(text: str) -> Written | None:
    """Read a length of time at the beginning of `text`, such as “10 minutes”."""
    length = _DURATION.match(text)
    written = _format_length(length, smallest_unit="ms") if length is not None else ""
    return (length.end(), written) if length is not None and written else None


def _format_length(match: re.Match[str], *, smallest_unit: str) -> str:
    """Return a length or age as a query writes it, "" if it cannot."""
    groups = match.groupdict()
    unit = next(name for name in _UNITS if groups[name])
    number = groups.get("number") or "1"
    if unit in _DAYS:
        return f"{round(float(number) * _DAYS[unit])}d"
    if smallest_unit == "s" and unit == "ms":
        return ""
    if smallest_unit == "s" and "." in number:  # An age is a whole number.
        smaller = {"m": ("s", 60), "h": ("m", 60), "d": ("h", 24), "w": ("h", 168)}.get(unit)
        return f"{round(float(number) * smaller[1])}{smaller[0]}" if smaller else ""
    return f"{number}{unit}"
