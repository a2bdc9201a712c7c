"""The picture of today: bars by hour and state, the week before as an outline, problems below.

Geometry only: x in per cent and y in pixels, so that text and marks keep their size. Pure.
"""

from dataclasses import dataclass
from typing import Final

from display.state_textures import STATE_TEXTURES
from pages.overview.day_counts import DAY_STATES, DayCounts, DayState
from web.templatetags.gatebook import grouped

BASE: Final = 148.0  # y of the axis
TOP: Final = 14.0
LEAST: Final = 4.0  # px: a problem is never lower
GAP: Final = 1.0
MARK_LINES: Final = (176, 191, 206)
_STEPS: Final = (1, 2, 5)
_WIDTH: Final = 100 / 24


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: one state with its count."""

    state: DayState
    count: int
    y: str
    height: str

    @property
    def texture(self) -> str:
        """The texture of the fill; "" is a plain fill."""
        return STATE_TEXTURES["effect"][self.state.key]


@dataclass(frozen=True, slots=True)
class ProblemMark:
    """A shape with a number below the axis."""

    state: DayState
    y: int
    count: int
    url: str


@dataclass(frozen=True, slots=True)
class HourBar:
    """The bar of one hour and the marks below it."""

    hour: int
    x: str
    width: str
    middle: str
    total: int
    before: int
    url: str
    segments: tuple[Segment, ...]
    marks: tuple[ProblemMark, ...]

    @property
    def words(self) -> str:
        """The hour and its states: "12:00: 10 done, 2 failed"."""
        states = (f"{grouped(part.count)} {part.state.word}" for part in self.segments)
        return f"{self.hour:02d}:00: {', '.join(states)}"


@dataclass(frozen=True, slots=True)
class DayChart:
    """Everything that the template draws."""

    bars: tuple[HourBar, ...]
    outline: tuple[tuple[str, str, str, str], ...]  # lines: x1, x2, y1, y2
    grid: tuple[tuple[str, str, str], ...]  # y, y of the word, word
    hours: tuple[tuple[str, str], ...]  # x, word
    now_x: str
    now_word: str
    word_x: str
    word_anchor: str
    height: int


def draw_day(day: DayCounts) -> DayChart:
    """Draw the counts of a day."""
    highest = max(
        [1, *(day.sum_of_hour(hour) for hour in range(24)), *day.before.values()],
    )
    step = _find_step(highest)
    scale = (BASE - TOP) / highest
    share = min(100.0, 100 * (day.now_us - day.day_us) / (24 * 3_600_000_000))
    minutes = (day.now_us - day.day_us) // 60_000_000
    bars = tuple(_draw_bar(day, hour, scale) for hour in range(24) if day.sum_of_hour(hour))
    lines = max((len(bar.marks) for bar in bars), default=0)
    ends = share > 90
    return DayChart(
        bars,
        tuple(_draw_outline(day, scale)),
        tuple(
            (_px(BASE - value * scale), _px(BASE - value * scale + 4), grouped(value))
            for value in range(step, highest + 1, step)
        ),
        tuple((_percent(hour * _WIDTH), f"{hour:02d}") for hour in range(0, 24, 3)),
        _percent(share),
        f"{minutes // 60:02d}:{minutes % 60:02d}",
        _percent(share - 0.6 if ends else share + 0.6),
        "end" if ends else "start",
        MARK_LINES[max(lines, 1) - 1] + 10,
    )


def _draw_bar(day: DayCounts, hour: int, scale: float) -> HourBar:
    y = BASE
    segments: list[Segment] = []
    marks: list[ProblemMark] = []
    for state in DAY_STATES:
        count = day.counts[hour, state.key]
        if not count:
            continue
        height = max(count * scale, LEAST if state.is_problem else 1.5)
        y -= height
        segments.append(Segment(state, count, _px(y), _px(max(height - GAP, 1))))
        if state.is_problem:
            url = day.find_url(state.query, hour)
            marks.append(ProblemMark(state, MARK_LINES[len(marks)], count, url))
    x = hour * _WIDTH
    return HourBar(
        hour,
        _percent(x + 0.14 * _WIDTH),
        _percent(0.72 * _WIDTH),
        _percent(x + _WIDTH / 2),
        day.sum_of_hour(hour),
        day.before[hour],
        day.find_url("", hour),
        tuple(segments),
        tuple(marks),
    )


def _draw_outline(day: DayCounts, scale: float) -> "list[tuple[str, str, str, str]]":
    """Return the steps of the day before, without lines along the axis."""
    if not day.before:
        return []
    lines, last = [], BASE
    for hour in range(24):
        y = BASE - day.before[hour] * scale
        left, right = _percent(hour * _WIDTH), _percent((hour + 1) * _WIDTH)
        if abs(y - last) >= 0.1:
            lines.append((left, left, _px(last), _px(y)))
        if y < BASE:
            lines.append((left, right, _px(y), _px(y)))
        last = y
    if last < BASE:
        lines.append(("100%", "100%", _px(last), _px(BASE)))
    return lines


def _find_step(highest: int) -> int:
    """Return the distance of grid lines: 1, 2 or 5 times a power of ten, at most four lines."""
    size = 1
    while True:
        for step in _STEPS:
            if highest / (step * size) < 4:
                return step * size
        size *= 10


def _px(value: float) -> str:
    return f"{value:.1f}"


def _percent(value: float) -> str:
    return f"{value:.2f}%"
