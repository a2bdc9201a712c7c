"""Draw the activity of an agent by day: the area of a square is the number of effects.

x in per cent and y in pixels, without a viewBox: one drawing serves every width. The table beside
it has the same numbers.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.utils.safestring import SafeString

from db.whole_days import DAY_US, format_day
from display.urls_of_rows import build_search_url
from pages.agents.agent_activity import CALENDAR_WEEKS
from web.untrusted_text import format_markup

WIDEST: Final = 12.5  # side of the square of the day with most effects, in pixels
_ROW: Final = 16
_TOP: Final = 26
_LEFT: Final = 3.0  # per cent, for the names of the weekdays
_FRAME: Final = 15.5
_LABELLED: Final = ((0, "M"), (2, "W"), (4, "F"))


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """A day of the calendar with its counts and the search for its effects."""

    start_us: int
    effects: int
    bypassed: int
    unknown: int
    query: str

    @property
    def title(self) -> str:
        """The day in words."""
        day = datetime.fromtimestamp(self.start_us / 1_000_000, UTC).strftime("%a %d %b")
        parts = [f"{self.effects:,} effect{'' if self.effects == 1 else 's'}"]
        parts += [f"{self.bypassed:,} without permission"] if self.bypassed else []
        parts += [f"{self.unknown:,} with unknown outcome"] if self.unknown else []
        return f"{day}: {', '.join(parts)}"


def list_calendar_days(
    query: str,
    first_us: int,
    today_us: int,
    effects: Counter[int],
    bypassed: Counter[int],
    unknown: Counter[int],
) -> list[CalendarDay]:
    """Return every day from the first to today; `query` finds the agent's effects."""
    return [
        CalendarDay(day, effects[day], bypassed[day], unknown[day], f"{query} at:{format_day(day)}")
        for day in range(first_us, today_us + 1, DAY_US)
    ]


def draw_calendar(days: list[CalendarDay]) -> SafeString:
    """Return the content of the SVG: 134 pixels high, a column for each week."""
    most = max((day.effects for day in days), default=0)
    step = (100 - _LEFT) / CALENDAR_WEEKS
    parts: list[SafeString] = []
    month = ""
    for number, day in enumerate(days):
        week, weekday = divmod(number, 7)
        x = f"{_LEFT + (week + 0.5) * step:.2f}%"
        name = datetime.fromtimestamp(day.start_us / 1_000_000, UTC).strftime("%b")
        if weekday == 0 and name != month:
            month = name
            if week < CALENDAR_WEEKS - 1:
                at = f"{_LEFT + week * step:.2f}%"
                parts.append(format_markup('<text class="dim" x="{}" y="10">{}</text>', at, name))
        parts.append(_draw_day(day, x, _TOP + weekday * _ROW, most))
    for weekday, letter in _LABELLED:
        y = _TOP + weekday * _ROW + 4
        parts.append(format_markup('<text class="dim" x="0" y="{}">{}</text>', str(y), letter))
    return SafeString("".join(parts))


def _draw_day(day: CalendarDay, x: str, y: int, most: int) -> SafeString:
    if not day.effects:
        return format_markup('<circle class="cell" cx="{}" cy="{}" r="1"/>', x, str(y))
    side = max(WIDEST * (day.effects / most) ** 0.5, 1.5)
    shapes = [_draw_square("sq", side)]
    if day.bypassed:
        shapes.append(_draw_square("bad-ring", _FRAME))
    elif day.unknown:
        shapes.append(_draw_square("odd", _FRAME))
    # The table has the same links, so the keyboard skips these.
    return format_markup(
        '<a href="{}" tabindex="-1"><title>{}</title><svg class="pin" x="{}" y="{}">'
        '<rect class="touch" x="-8" y="-8" width="16" height="16"/>{}</svg></a>',
        build_search_url(day.query),
        day.title,
        x,
        str(y),
        SafeString("".join(shapes)),
    )


def _draw_square(look: str, side: float) -> SafeString:
    corner = f"{-side / 2:.1f}"
    return format_markup(
        '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>',
        look,
        corner,
        corner,
        f"{side:.1f}",
        f"{side:.1f}",
    )
