"""Draw the cases of the stuck board as clocks: a lane per cause on one axis of time.

The axis is logarithmic: minutes and days fit on it. x in per cent, y in pixels, no viewBox. Each
lane is a drawing of its own, so that its name can be above it on narrow pages. The table below has
the same figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Final

from django.urls import reverse
from django.utils.safestring import SafeString

from monitoring.stuck.board import Cause, CauseGroup, StuckRow
from web.templatetags.gatebook import elapsed
from web.untrusted_text import format_markup

LANE: Final = 30  # pixels
_MIDDLE: Final = LANE // 2
_SECOND: Final = 1_000_000
_TICKS: Final = (
    (60, "1 min"),
    (600, "10 min"),
    (3600, "1 h"),
    (6 * 3600, "6 h"),
    (86_400, "1 d"),
    (7 * 86_400, "7 d"),
    (30 * 86_400, "30 d"),
)
_FIRST_S: Final = 20  # the axis begins here; shorter times stand at its start
_HALF: Final = "4.5"


@dataclass(frozen=True, slots=True)
class ClockLane:
    """A cause with the number of its cases, and the drawing of those that are shown."""

    cause: Cause
    count: int
    inner: SafeString


@dataclass(frozen=True, slots=True)
class ClockStrip:
    """The lanes, and the labels of the axis above them."""

    lanes: list[ClockLane]
    axis: SafeString
    lane_height: int = LANE


def draw_clock_strip(groups: Sequence[CauseGroup], now: int) -> ClockStrip | None:
    """Draw the shown rows of each group; None without rows."""
    if not groups:
        return None
    oldest = max(row.reason.measure_age(now) for group in groups for row in group.rows)
    longest_s = max(oldest / _SECOND * 1.15, 3600.0)
    ticks = [
        (_place(seconds * _SECOND, longest_s), word)
        for seconds, word in _TICKS
        if seconds <= longest_s
    ]
    form = '<text class="dim" x="{}" y="9" text-anchor="middle">{}</text>'
    axis = SafeString("".join(format_markup(form, x, word) for x, word in ticks))
    grid = _draw_grid([x for x, _ in ticks])
    lanes = []
    for group in groups:
        cases = [_draw_case(row, group.cause, now, longest_s) for row in group.rows]
        lanes.append(ClockLane(group.cause, group.count, SafeString("".join([grid, *cases]))))
    return ClockStrip(lanes, axis)


def _draw_grid(ticks: Sequence[str]) -> SafeString:
    """Draw the line of a lane and its ticks."""
    form = '<line class="grid" x1="0" x2="100%" y1="{0}" y2="{0}"/>'
    parts = [format_markup(form, str(_MIDDLE))]
    form = '<line class="grid" x1="{0}" x2="{0}" y1="0" y2="{1}"/>'
    parts += [format_markup(form, x, str(LANE)) for x in ticks]
    return SafeString("".join(parts))


def _draw_case(row: StuckRow, cause: Cause, now: int, longest_s: float) -> SafeString:
    """Draw a case: a bar from its threshold to its age, a tick where it was found."""
    age, threshold = row.reason.measure_age(now), row.reason.threshold_us
    end, start = _percent(age, longest_s), _percent(max(threshold, _SECOND), longest_s)
    began = row.reason.began_us or row.reason.since_us
    marks = [
        format_markup(
            '<rect class="over" x="{}%" y="{}" width="{}%" height="5"/>',
            f"{min(start, end):.2f}",
            f"{_MIDDLE - 2.5}",
            f"{max(end - start, 0.3):.2f}",
        )
    ]
    if row.found_us is not None:
        x = f"{_percent(max(row.found_us - began, 0), longest_s):.2f}%"
        marks.append(
            format_markup(
                '<line class="found" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>',
                x,
                str(_MIDDLE - 7),
                str(_MIDDLE + 7),
            )
        )
    marks.append(
        format_markup(
            '<circle class="fill" cx="{}%" cy="{}" r="{}"/>', f"{end:.2f}", str(_MIDDLE), _HALF
        )
    )
    words = f"{row.reason.name or row.session or ''}: {elapsed(age)}"
    words += f", threshold {elapsed(threshold)}" if threshold else ""
    return format_markup(
        '<a class="{}" href="{}" tabindex="-1"><title>{}</title>{}</a>',
        cause.style,
        _find_page(row),
        words,
        SafeString("".join(marks)),
    )


def _find_page(row: StuckRow) -> str:
    if row.reason.kind in ("effect", "gate"):
        return reverse(row.reason.kind, args=[row.reason.subject])
    if row.session is not None:
        return reverse("session_why", args=[row.session.id])
    return reverse("agent", args=[row.reason.subject])


def _place(us: int, longest_s: float) -> str:
    return f"{_percent(us, longest_s):.2f}%"


def _percent(us: float, longest_s: float) -> float:
    """Return the place of a length of time on the axis: 1 to 99 per cent."""
    seconds = max(us / _SECOND, _FIRST_S)
    return 1 + 98 * log(seconds / _FIRST_S) / log(longest_s / _FIRST_S)
