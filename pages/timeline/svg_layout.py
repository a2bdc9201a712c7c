"""Layout of the lanes timeline: axis with cut gaps, rows without overlaps, lease spans.

Pure, no markup: pages/timeline/svg.py draws what is placed by this module. Horizontal positions are
per cent of the drawing, which has no viewBox, so that text keeps its size at every width. Rows of
labels are planned for the least width, WIDTH pixels at zoom 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby, pairwise
from typing import Any, Final

import orjson

from db.text import to_column_text
from display.display_state import short_process
from pages.timeline.bars import Bar, SessionEvent, TimelineWindow
from web.templatetags.gatebook import elapsed
from web.untrusted_text import split_untrusted

WIDTH: Final = 832  # least width of the drawing at zoom 1, pixels; static/lanes.css has it too
ROW: Final = 34  # height of a row: a bar and its label below; static/lanes.css has it too
CHARACTER: Final = 5.9  # approximate width of a letter, pixels
MOST_ROWS: Final = 10  # rows of one lane; denser lanes lose labels first, then bars
MOST_DRAWN: Final = 120  # bars of a drawing; with more effects, some are drawn as one
MOST_MERGED: Final = 3  # the highest level of merge_bars
CHUNK: Final = 8
MIN_MERGED: Final = 3  # this many successful calls of one tool in a row become one bar
LABEL: Final = 24
LONG_LABEL: Final = 48  # where it needs no extra row
_S: Final = 1_000_000
CUT_US: Final = 1_800 * _S  # longer times without activity are cut
MOST_CUTS: Final = 12
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
class AxisSpan:
    """A time range of the axis, from `left` to `right` per cent; `cut_us` of a gap, else 0."""

    starts_us: int
    ends_us: int
    left: float
    right: float
    cut_us: int = 0


@dataclass(frozen=True, slots=True)
class Axis:
    """The time range of the drawing, in spans of one scale with gaps between them.

    `width` is the least width of the drawing in pixels.
    """

    spans: Sequence[AxisSpan]
    zoom: int = 1
    width: int = WIDTH

    @property
    def starts_us(self) -> int:
        return self.spans[0].starts_us

    @property
    def ends_us(self) -> int:
        return self.spans[-1].ends_us

    @property
    def gaps(self) -> list[AxisSpan]:
        """Return the gaps that are cut."""
        return [span for span in self.spans if span.cut_us]

    def x(self, at_us: int) -> float:
        """Return the place of a moment in per cent; moments outside are placed at the edge."""
        for span in self.spans:
            if at_us <= span.ends_us:
                share = (at_us - span.starts_us) / max(span.ends_us - span.starts_us, 1)
                return round(span.left + max(share, 0.0) * (span.right - span.left), 2)
        return self.spans[-1].right

    def pixels(self, at_us: int) -> float:
        """Return the place of a moment in pixels, if the drawing has its least width."""
        return self.x(at_us) / 100 * self.width * self.zoom

    def per_cent(self, pixels: float) -> float:
        """Return pixels of the least width as per cent."""
        return round(pixels * 100 / (self.width * self.zoom), 2)


def build_axis(
    moments: Sequence[int],
    starts_us: int,
    ends_us: int,
    *,
    zoom: int = 1,
    left: float = 1.5,
    right: float = 98.5,
) -> Axis:
    """Return the axis from `starts_us` to `ends_us` without long times between `moments`.

    A part of each gap stays at its ends, so that bars do not touch the cut. A gap keeps the same
    width however long it is; both sides of it have one scale.
    """
    within = sorted({starts_us, ends_us, *(at for at in moments if starts_us < at < ends_us)})
    gaps = sorted(
        ((after - before, before, after) for before, after in pairwise(within)), reverse=True
    )
    cuts = sorted((before, after) for length, before, after in gaps[:MOST_CUTS] if length > CUT_US)
    active = ends_us - starts_us - sum(after - before for before, after in cuts)
    margin = max(active // 20, 2 * _S)
    margins = [min(margin, (after - before) // 4) for before, after in cuts]
    edges = [starts_us]
    for (before, after), kept in zip(cuts, margins, strict=True):
        edges += [before + kept, after - kept]
    edges.append(ends_us)
    cut_width = min(9.0, 45 / len(cuts)) if cuts else 0.0
    shown = sum(edges[n + 1] - edges[n] for n in range(0, len(edges), 2))
    scale = (right - left - cut_width * len(cuts)) / max(shown, 1)
    spans: list[AxisSpan] = []
    place = left
    for number, (before, after) in enumerate(pairwise(edges)):
        is_cut = number % 2 == 1
        width = cut_width if is_cut else (after - before) * scale
        length = cuts[number // 2][1] - cuts[number // 2][0] if is_cut else 0
        spans.append(AxisSpan(before, after, place, place + width, length))
        place += width
    return Axis(spans, zoom)


@dataclass(slots=True)
class DrawnBar:
    """One bar of the drawing: an effect, or several equal effects in a row."""

    bars: list[Bar]

    @property
    def first(self) -> Bar:
        return self.bars[0]

    @property
    def worst(self) -> Bar:
        """Return the bar that needs attention most."""
        return max(self.bars, key=_severity)

    @property
    def starts_us(self) -> int:
        return self.first.steps[0].at_us

    def stops_us(self, ends_us: int) -> int:
        """Return when the last of them ended, or `ends_us` while it is open."""
        return max(ends_us if bar.is_open else bar.moves[-1].at_us for bar in self.bars)

    def label(self, most: int = LABEL) -> str:
        """Return a label of at most `most` letters: the tool, and the call or the count."""
        tool, gist = self.first.effect.tool or "plan not arrived", self.first.gist
        if len({(bar.state, bar.effect.outcome) for bar in self.bars}) > 1:
            return f"{len(self.bars)} calls, one {self.worst.state}"
        if len({bar.effect.tool for bar in self.bars}) > 1:
            word = "succeeded" if self.first.effect.outcome == "ok" else self.first.state
            return f"{len(self.bars)} calls, all {word}"
        if len(self.bars) > 1:
            return f"{plain_label(tool, most - 6)} ×{len(self.bars)}"
        # Without this, "git.push git push origin main" would repeat the tool.
        says_itself = gist.casefold().startswith(f"{tool.replace('.', ' ')} ".casefold())
        return plain_label(gist if says_itself else f"{tool} {gist}".strip(), most)

    def note(self, most: int = LABEL) -> str:
        """Return the words below the bar: what stands out before what it is."""
        bar = self.first
        if len(self.bars) > 1 or bar.run is None:
            return self.label(most)
        if bar.run.is_late:
            return f"{self.label(most)}: ran {bar.run.gap_words}"
        if bar.run.decide_by_us is not None and bar.state == "awaiting approval":
            expires = f", expires {_clock_words(bar.run.decide_by_us)[:5]}"
            return f"{self.label(max(most - len(expires), 12))}{expires}"
        return self.label(most)

    @property
    def words(self) -> str:
        """Return the description, a line for each fact; the first names the bar."""
        bar = self.first
        if len(self.bars) > 1:
            answered = _clock_words(self.bars[-1].moves[-1].at_us)
            return (
                f"{bar.effect} to {self.bars[-1].effect} {self.label(LONG_LABEL)},"
                f" {self.worst.state}"
                f"\n{_clock_words(self.starts_us)} to {answered}"
            )
        count = bar.effect.attempt_count
        tries = f", {count} attempts" if count > 1 else ""
        error = " with an error" if bar.is_error else ""
        lines = [f"{bar.effect} {self.label(LONG_LABEL)}, {bar.state}{error}{tries}"]
        lines += _run_lines(bar)
        return "\n".join(lines)


def _severity(bar: Bar) -> int:
    if bar.effect.violates or (bar.run is not None and bar.run.is_late):
        return 9
    order = ("unknown", "failed", "awaiting approval", "dispatched", "planned", "acknowledged")
    if bar.is_error:
        return 7
    return 8 - order.index(bar.state) if bar.state in order else 0


def _run_lines(bar: Bar) -> list[str]:
    """Return when a bar was planned and ran, how long it took, and what stands out."""
    run = bar.run
    requested_us = next((step.at_us for step in bar.steps if step.what == "awaiting"), None)
    ruled = next((step.at_us for step in bar.steps if step.what == "ruled"), None)
    times = [f"planned {_clock_words(bar.steps[0].at_us)}"]
    if run is not None and run.ran_us is not None:
        times.append(f"ran {_clock_words(run.ran_us)}")
        if run.took_us is not None:
            times.append(f"took {elapsed(run.took_us)}")
    elif bar.state in ("planned", "awaiting approval"):
        times.append("not run")
    lines = [", ".join(times)]
    if requested_us is not None and ruled is not None:
        lines.append(f"waited {elapsed(ruled - requested_us)} for approval")
    if run is not None and run.decide_by_us is not None:
        lines.append(f"request expires {_clock_words(run.decide_by_us)}")
    if run is not None and run.gap_words:
        lines.append(f"ran {run.gap_words}")
    if run is not None and run.process:
        lines.append(f"worker {plain_label(short_process(run.process), 40)}")
    return lines


def _clock_words(at_us: int) -> str:
    return datetime.fromtimestamp(at_us // _S, UTC).strftime("%H:%M:%S")


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick of the axis, at `x` per cent."""

    x: float
    label: str


@dataclass(slots=True)
class Lane:
    """The bars of one worker of a lane: names cut to fit and in full.

    `is_sub`: the lane has another worker above, and only the first one names it. `effects` counts
    those of the whole lane; `key` is its task, tool, worker or session.
    """

    name: str
    worker: str
    whole_name: str
    whole_worker: str
    bars: list[Bar] = field(default_factory=list)
    key: Any = None
    is_sub: bool = False
    effects: int = 0


def axis_ticks(axis: Axis) -> list[Tick]:
    """Return round moments of the shown spans, few enough for labels, in UTC."""
    shown = [span for span in axis.spans if not span.cut_us]
    length = max(sum(span.ends_us - span.starts_us for span in shown), 1)
    most = MOST_TICKS * axis.zoom
    step = next(
        (seconds * _S for seconds in _STEPS_S if length / (seconds * _S) <= most),
        _STEPS_S[-1] * _S,
    )
    clock = "%H:%M:%S" if step < 60 * _S else "%H:%M" if step < 86_400 * _S else "%Y-%m-%d"
    several_days = axis.starts_us // (86_400 * _S) != axis.ends_us // (86_400 * _S)
    ticks: list[Tick] = []
    day = None
    for span in shown:
        first = -(-span.starts_us // step) * step
        for at in range(first, span.ends_us, step):
            moment = datetime.fromtimestamp(at / _S, UTC)
            new_day = several_days and step < 86_400 * _S and moment.date() != day
            label = moment.strftime(f"%m-%d {clock}" if new_day else clock)
            room = axis.per_cent(CHARACTER * len(label) + 8)
            x = axis.x(at)
            if ticks and x - ticks[-1].x < room:
                continue
            day = moment.date()
            ticks.append(Tick(x, label))
    return ticks


def plain_label(text: str, limit: int) -> str:
    """Return agent text for SVG, cut to `limit`; hidden characters as tokens."""
    rendered = "".join(
        piece.shown or piece.raw
        for piece in split_untrusted(to_column_text(text)[: limit * 2], one_line=True)
    )
    return rendered if len(rendered) <= limit else f"{rendered[: limit - 1]}…"


def group_by_lane(lanes: TimelineWindow) -> list[Lane]:
    """Return the lanes in the order of their first effects, one for each worker of a lane."""
    by_lane: dict[Any, dict[str, list[Bar]]] = {}
    for bar in lanes.bars:
        process = bar.process if lanes.by == "task" and not lanes.across else ""
        by_lane.setdefault(lanes.lane_of(bar), {}).setdefault(process, []).append(bar)
    lanes_shown: list[Lane] = []
    for key, by_worker in by_lane.items():
        handle, title, worker = lanes.describe_lane(key)
        # Effects that nobody ran yet stand with those of the first worker.
        not_run = by_worker.pop("", [])
        rows = list(by_worker.items()) or [("", [])]
        rows[0] = (rows[0][0], sorted([*rows[0][1], *not_run], key=lambda bar: bar.starts_us))
        for number, (process, bars) in enumerate(rows):
            whose = process or worker
            lanes_shown.append(
                Lane(
                    "" if number else plain_label(title or handle, 22),
                    plain_label(short_process(whose), 22),
                    "" if number else plain_label(title, 200),
                    plain_label(whose, 200),
                    bars,
                    key,
                    number > 0,
                    sum(len(of_worker) for of_worker in by_worker.values()) + len(not_run),
                )
            )
    return lanes_shown


def merge_bars(bars: Sequence[Bar], level: int) -> list[DrawnBar]:
    """Return the bars of a lane, the more of them as one the higher the `level` is.

    0: MIN_MERGED or more successful calls of one tool in a row. 1: of any tool. 2: calls in a row
    that have the same state. 3: eight calls in a row, shown as the worst of them.
    """
    if level == MOST_MERGED:
        return [DrawnBar(list(bars[n : n + CHUNK])) for n in range(0, len(bars), CHUNK)]

    def alike(bar: Bar) -> Any:
        plainly = (
            bar.state == "acknowledged"
            and bar.effect.outcome == "ok"
            and bar.effect.attempt_count == 1
        )
        if bar.effect.violates or (bar.run is not None and bar.run.is_late):
            return bar.effect.id
        if level > 1:
            return bar.state, bar.effect.outcome
        if not plainly:
            return bar.effect.id
        return "" if level else bar.effect.tool

    least = MIN_MERGED if level < 2 else 2
    drawn: list[DrawnBar] = []
    for _, run in groupby(bars, key=alike):
        run_bars = list(run)
        drawn += (
            [DrawnBar(run_bars)]
            if len(run_bars) >= least
            else [DrawnBar([bar]) for bar in run_bars]
        )
    return drawn


@dataclass(slots=True)
class PlacedBar:
    """A bar in its row; its label is below, from its start or up to its end (`anchor`)."""

    row: int
    drawn: DrawnBar
    anchor: str
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
    total = WIDTH * axis.zoom
    for item in drawn:
        start, stop = axis.pixels(item.starts_us) - 8, axis.pixels(item.stops_us(ends_us)) + 8
        label = item.note(most) if most else ""
        anchor = "start"
        if label:
            width = CHARACTER * len(label) + 14
            if start + width > total:
                anchor, start = "end", min(start, max(stop - width, 0))
            else:
                stop = max(stop, start + width)
        row = next((number for number, taken in enumerate(free) if taken <= start), None)
        if row is None:
            dropped += len(item.bars)
            continue
        free[row] = stop
        placed.append(PlacedBar(row, item, anchor, label))
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
