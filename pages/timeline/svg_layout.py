"""Layout of the lanes timeline: axis, rows without overlaps, and lease spans.

Pure, no markup: pages/timeline/svg.py draws what is placed by this module. Lengths are SVG units.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

import orjson

from db.text import to_column_text
from display.display_state import short_process
from pages.timeline.bars import Bar, SessionEvent, TimelineWindow
from web.untrusted_text import split_untrusted

WIDTH: Final = 1160
LEFT, RIGHT = 150, 1138  # start and end of the axis
ROW: Final = 26
CHARACTER: Final = 6.1  # approximate width of a letter
MOST_ROWS: Final = 10  # rows of one lane; denser lanes lose labels first, then bars
MIN_MERGED: Final = 3  # this many successful calls of one tool in a row become one bar
LABEL: Final = 30
LONG_LABEL: Final = 56  # where it needs no extra row
_S: Final = 1_000_000
# Possible distances of ticks in seconds.
_STEPS_S: Final = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1_800,
    3_600,
    7_200,
    10_800,
    21_600,
    43_200,
    86_400,
    172_800,
    604_800,
    1_209_600,
    2_592_000,
    7_776_000,
    31_536_000,
)
MOST_TICKS: Final = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """The time range of the drawing."""

    starts_us: int
    ends_us: int

    def x(self, at_us: int) -> float:
        """Return the x of a moment; moments outside are placed at the edge."""
        share = (at_us - self.starts_us) / (self.ends_us - self.starts_us)
        return round(LEFT + min(max(share, 0.0), 1.0) * (RIGHT - LEFT), 1)


@dataclass(slots=True)
class DrawnBar:
    """One bar of the drawing: an effect, or several equal effects in a row."""

    bars: list[Bar]

    @property
    def first(self) -> Bar:
        return self.bars[0]

    @property
    def starts_us(self) -> int:
        return self.first.steps[0].at_us

    def stops_us(self, ends_us: int) -> int:
        """Return when the last of them ended, or `ends_us` while it is open."""
        return max(ends_us if bar.is_open else bar.moves[-1].at_us for bar in self.bars)

    def label(self, most: int = LABEL) -> str:
        """Return a label of at most `most` letters: the tool, and the call or the count."""
        tool, gist = self.first.effect.tool or "plan not arrived", self.first.gist
        if len({bar.effect.tool for bar in self.bars}) > 1:
            return f"{len(self.bars)} calls, all succeeded"
        if len(self.bars) > 1:
            return f"{plain_label(tool, most - 6)} ×{len(self.bars)}"
        # Without this, "git.push git push origin main" would repeat the tool.
        says_itself = gist.casefold().startswith(f"{tool.replace('.', ' ')} ".casefold())
        return plain_label(gist if says_itself else f"{tool} {gist}".strip(), most)

    @property
    def words(self) -> str:
        """Return the description for screen readers."""
        bar = self.first
        if len(self.bars) > 1:
            return f"{bar.effect} to {self.bars[-1].effect} {self.label()}, {bar.state}"
        count = bar.effect.attempt_count
        tries = f", {count} attempts" if count > 1 else ""
        error = " with an error" if bar.is_error else ""
        return f"{bar.effect} {self.label()}, {bar.state}{error}{tries}"


@dataclass(slots=True)
class Tick:
    """A tick of the axis."""

    x: float
    label: str


@dataclass(slots=True)
class Lane:
    """The bars of one task: its name and worker, cut to fit and in full."""

    name: str
    worker: str
    whole_name: str
    whole_worker: str
    bars: list[Bar]


def axis_ticks(starts_us: int, ends_us: int) -> list[Tick]:
    """Return at most MOST_TICKS round moments as shares of the range, labels in UTC."""
    span = max(ends_us - starts_us, 1)
    step = next(
        (seconds * _S for seconds in _STEPS_S if span / (seconds * _S) <= MOST_TICKS),
        _STEPS_S[-1] * _S,
    )
    first = -(-starts_us // step) * step
    form = "%H:%M:%S" if step < 60 * _S else "%H:%M" if step < 86_400 * _S else "%Y-%m-%d"
    several_days = starts_us // (86_400 * _S) != ends_us // (86_400 * _S)
    if several_days and step < 86_400 * _S:
        form = f"%m-%d {form}"
    moments = range(first, ends_us, step)
    return [
        Tick((at - starts_us) / span, datetime.fromtimestamp(at / _S, UTC).strftime(form))
        for at in moments
    ]


def plain_label(text: str, limit: int) -> str:
    """Return agent text for SVG, cut to `limit`; hidden characters as tokens."""
    rendered = "".join(
        piece.shown or piece.raw
        for piece in split_untrusted(to_column_text(text)[: limit * 2], one_line=True)
    )
    return rendered if len(rendered) <= limit else f"{rendered[: limit - 1]}…"


def group_by_lane(lanes: TimelineWindow) -> list[Lane]:
    """Return the lanes in the order of their first effects."""
    by_lane: dict[Any, list[Bar]] = {}
    for bar in lanes.bars:
        by_lane.setdefault(lanes.lane_of(bar), []).append(bar)
    lanes_shown = []
    for task, bars in by_lane.items():
        handle, title, worker = (
            lanes.tasks.get(task, ("", "effects", "")) if task is not None else ("", "effects", "")
        )
        whose = Lane(
            plain_label(title or handle, 22),
            plain_label(short_process(worker), 22),
            plain_label(title, 200),
            plain_label(worker, 200),
            bars,
        )
        lanes_shown.append(whose)
    return lanes_shown


def merge_successful(bars: Sequence[Bar], *, mixed: bool = False) -> list[DrawnBar]:
    """Group MIN_MERGED or more successful bars of one tool, or of any if `mixed`."""

    def alike(bar: Bar) -> Any:
        plainly = (
            bar.state == "acknowledged"
            and bar.effect.outcome == "ok"
            and bar.effect.attempt_count == 1
        )
        if not plainly or bar.effect.violates:
            return bar.effect.id
        return "" if mixed else bar.effect.tool

    drawn: list[DrawnBar] = []
    for _, run in groupby(bars, key=alike):
        run_bars = list(run)
        drawn += (
            [DrawnBar(run_bars)]
            if len(run_bars) >= MIN_MERGED
            else [DrawnBar([bar]) for bar in run_bars]
        )
    return drawn


@dataclass(slots=True)
class PlacedBar:
    """A bar in its row; the label is at `side`: right, left, above or empty."""

    row: int
    drawn: DrawnBar
    side: str
    label: str


def place_bars(axis: Axis, drawn: Sequence[DrawnBar], ends_us: int) -> tuple[list[PlacedBar], int]:
    """Place bars in rows without overlap; return also how many effects do not fit.

    Labels are long where they need no extra row, else short; without space they are dropped, and
    then bars are.
    """
    short, dropped = _place_with_labels(axis, drawn, ends_us, LABEL)
    if dropped:
        return _place_with_labels(axis, drawn, ends_us, 0)
    long, long_dropped = _place_with_labels(axis, drawn, ends_us, LONG_LABEL)
    return (short, 0) if long_dropped or _row_count(long) > _row_count(short) else (long, 0)


def _row_count(placed: Sequence[PlacedBar]) -> int:
    return max((item.row for item in placed), default=0)


def _place_with_labels(
    axis: Axis, drawn: Sequence[DrawnBar], ends_us: int, most: int
) -> tuple[list[PlacedBar], int]:
    free = [0.0] * MOST_ROWS
    placed: list[PlacedBar] = []
    dropped = 0
    for item in drawn:
        start, stop = axis.x(item.starts_us) - 9, axis.x(item.stops_us(ends_us)) + 11
        label = item.label(most) if most else ""
        side, width = "", CHARACTER * len(label) + 8
        if label:
            side = (
                "right" if stop + width <= WIDTH else "left" if start - width >= LEFT else "above"
            )
            start, stop = (
                start - (width if side == "left" else 0),
                stop + (width if side == "right" else 0),
            )
        row = next((number for number, taken in enumerate(free) if taken <= start), None)
        if row is None:
            dropped += len(item.bars)
            continue
        free[row] = stop
        placed.append(PlacedBar(row, item, side, label))
    return placed, dropped


@dataclass(frozen=True, slots=True)
class LeaseSpan:
    """A holder's lease in this window; `crash_us`: presumed dead then, or None."""

    starts_us: int
    ends_us: int
    epoch: str
    crash_us: int | None = None


@dataclass(frozen=True, slots=True)
class Silence:
    """A time without heartbeats; `is_ended` if the same holder sent one again."""

    starts_us: int
    ends_us: int
    is_ended: bool


def lease_spans(session_events: Sequence[SessionEvent], ends_us: int) -> list[LeaseSpan]:
    """Return the leases, each until its release, its loss or the next acquisition.

    A holder that fell silent and never returned crashed when its lease expired; a holder that lost
    its lease otherwise crashed at that moment.
    """
    open_silences = [
        event for event in find_silences(session_events, ends_us) if not event.is_ended
    ]
    spans: list[LeaseSpan] = []
    since: SessionEvent | None = None
    for event in [*session_events, None]:
        if event is not None and not event.kind.startswith("lease."):
            continue
        if since is not None:
            stops = ends_us if event is None else event.at_us
            silent = next(
                (each for each in open_silences if since.at_us <= each.starts_us < stops), None
            )
            crash = None
            if silent is not None:
                crash = min(silent.starts_us + _event_number(since, "ttl_s") * _S, stops)
            elif event is not None and event.kind != "lease.released":
                crash = stops
            epoch = "?" if since.epoch is None else str(since.epoch)
            spans.append(LeaseSpan(since.at_us, stops, epoch, crash))
        since = event if event is not None and event.kind == "lease.acquired" else None
    return spans


def find_silences(session_events: Sequence[SessionEvent], ends_us: int) -> list[Silence]:
    """Return silences, from a last heartbeat until the next or the lease's end."""
    silences: list[Silence] = []
    since: int | None = None
    for event in [*session_events, SessionEvent(ends_us, _END, 0, "{}", None)]:
        if since is not None and (event.kind in _SILENCE_ENDS):
            silences.append(
                Silence(since, max(event.at_us, since), event.kind == "session.silence_ended")
            )
            since = None
        if (
            event.kind == "session.silent"
        ):  # recorded when the lease expired, but the silence began with the last heartbeat
            since = min(_event_number(event, "since_us") or event.at_us, event.at_us)
    return silences


_END: Final = "the end of the window"
_SILENCE_ENDS: Final = (
    "session.silence_ended",
    "lease.acquired",
    "lease.released",
    "lease.lost",
    "session.silent",
    _END,
)


def _event_number(event: SessionEvent, name: str) -> int:
    value = orjson.loads(event.facts or "{}").get(name)
    return value if isinstance(value, int) else 0
