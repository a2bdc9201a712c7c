"""Template tag for the minutes in which a session was active."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from django import template

register = template.Library()
MINUTE_US: Final = 60_000_000


@register.simple_tag
def active_times(ticks: Sequence[int], since_us: int) -> str:
    """Return minutes as times in UTC, those in a row as one: "16:01, 16:03 to 16:07"."""
    # Of minutes in a row, each differs from its place in the list by the same number.
    rows = groupby(enumerate(ticks), key=lambda numbered: numbered[1] - numbered[0])
    spans = []
    for _, row in rows:
        minutes = [minute for _, minute in row]
        ends = dict.fromkeys((minutes[0], minutes[-1]))
        spans.append(" to ".join(_format_minute(since_us + tick * MINUTE_US) for tick in ends))
    return ", ".join(spans)


def _format_minute(us: int) -> str:
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%H:%M")
