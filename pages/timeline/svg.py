"""SVG of the lanes timeline.

Geometry in attributes, colour in classes, each bar a link.

Pure: `draw_timeline` turns a window (pages/timeline/lanes.py) into the markup that the page
includes. Horizontal lengths are per cent and vertical ones pixels, without viewBox, so one drawing
serves every width. The content security policy allows no inline style. Patterns are named in
attributes, because `url(#…)` in a stylesheet would refer to the stylesheet.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.utils.safestring import SafeString

from journal.summaries import parse_body
from ledger.violations import VIOLATION_LABELS
from monitoring.stuck.episodes import STUCK_KINDS
from monitoring.stuck.rule_names import name_rule
from pages.timeline.bars import MINUTE_US, Bar, SessionEvent, Step, TimelineWindow
from pages.timeline.svg_layout import (
    CHARACTER,
    MOST_DRAWN,
    MOST_MERGED,
    ROW,
    Axis,
    AxisSpan,
    Lane,
    LeaseSpan,
    PlacedBar,
    Silence,
    axis_ticks,
    build_axis,
    find_silences,
    group_by_lane,
    lease_spans,
    merge_bars,
    place_bars,
    plain_label,
)
from recovery.control_labels import CONTROL_LABELS
from web.templatetags.gatebook import elapsed
from web.untrusted_text import format_markup

US: Final = 1_000_000
HEAD: Final = 22  # height of the axis
MIN_MARK_DISTANCE: Final = 10  # pixels; of two closer marks, the first is drawn
MOST_BEATS: Final = 160  # strokes of heartbeats in a drawing
ZOOMS: Final = (1, 2, 4, 8, 16)
RANGES: Final = {"": "Whole session", "crash": "Around the crash", "hour": "Last hour"}
RANGE_US: Final = 900 * US  # before and after the crash
HOUR_US: Final = 3_600 * US
MAP_TRACKS: Final = 5
# The map is labelled for two least widths in pixels; static/lanes.css shows one of them.
MAP_WIDTHS: Final = {"for-wide": 560, "for-narrow": 200}
LABEL_DISTANCE: Final = 8  # pixels between two labels of the map
_SHAPES: Final[dict[str, tuple[str, str]]] = {  # step -> class and shape
    "planned": ("is-planned", "planned"),
    "awaiting": ("is-awaiting", "awaiting"),
    "voted": ("is-awaiting", "decided"),
    "ruled": ("is-awaiting", "decided"),
    "dispatched": ("is-dispatched", "dispatched"),
    "acknowledged": ("is-ack", "ack"),
    "failed": ("is-failed", "failed"),
    "probed": ("is-unknown", "either"),
    "superseded": ("is-superseded", "superseded"),
    "resolved": ("is-unknown", "tick"),
    "confirmed": ("is-ack", "tick"),
    "confirmation withdrawn": ("is-unknown", "tick"),
    "compensated": ("is-compensated", "compensated"),
    "unknown": ("is-unknown", "unknown"),
    "awaiting approval": ("is-awaiting", "awaiting"),
}
_LATE: Final = ("is-danger", "warn")
_MARKS: Final[dict[str, tuple[str, str]]] = {  # event of the session -> shape and word
    "checkpoint.written": ("checkpoint", "checkpoint"),
    "handoff.written": ("handoff", "handoff"),
    "handoff.accepted": ("handoff", "handoff accepted"),
    "artifact.recorded": ("artifact", "artifact"),
    "session.resumed": ("running", "resumed"),
    "session.stuck": ("warn", "stuck"),
    "session.recovered": ("tick", "no longer stuck"),
    "session.branched": ("undoable", "branched"),
    "session.merged": ("undoable", "merged"),
    "session.ended": ("stop", "ended"),
    "control.fired": ("warn", "control fired"),
    "integrity.violation": ("warn", "violation"),
    "integrity.fenced": ("warn", "fenced writer"),
    "integrity.conflict": ("warn", "conflict"),
}
# Shapes that `_mark` may name, for templates/pages/timeline/_lane_symbols.html.
MARK_SHAPES: Final = sorted(
    {shape for _, shape in [*_SHAPES.values(), _LATE]} | {shape for shape, _ in _MARKS.values()}
)


@dataclass(slots=True)
class LaneHead:
    """The name of a lane beside the drawing; `rows` is its height in rows.

    `worker` is below its name. `key` names the lane's effects, `count` their number.
    """

    name: str
    rows: int
    worker: str = ""
    whole_name: str = ""
    whole_worker: str = ""
    key: Any = None
    count: int = 0
    is_sub: bool = False


@dataclass(slots=True)
class Drawing:
    """What the template needs: heads of lanes, time range, the markup, and counts."""

    height: int
    starts_us: int
    ends_us: int
    inner: SafeString
    bars: int
    folded: int
    heads: list[LaneHead] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    overview: SafeString | None = None
    zoom: int = 1
    has_crash: bool = False
    outside: int = 0  # bars outside of the chosen range


@dataclass(slots=True)
class _Canvas:
    """The pieces of markup and the axis."""

    axis: Axis
    now_us: int | None = None  # where to draw the line of the present, if any
    parts: list[str] = field(default_factory=list)
    heads: list[LaneHead] = field(default_factory=list)

    def x(self, at_us: int) -> float:
        return self.axis.x(at_us)

    def add(self, form: str, *parts: Any) -> None:
        self.parts.append(
            format_markup(
                form, *[part if isinstance(part, SafeString) else str(part) for part in parts]
            )
        )


def draw_timeline(
    lanes: TimelineWindow,
    address: Callable[[Any], str],
    running: bool,
    zoom: int = 1,
    only: str = "",
) -> Drawing | None:
    """Return the window as markup; None if it is empty.

    `address` returns an effect's page; `running`: the session is still running. `only` is a key of
    RANGES; a range that is not in the window is ignored.
    """
    events = [event for event in lanes.session_events if event.kind != "session.silent"]
    moments = [step.at_us for bar in lanes.bars for step in bar.steps]
    moments += [event.at_us for event in events]
    moments += [starts_us for starts_us, _, _ in lanes.minutes[:1]] if not moments else []
    if not moments:
        return None
    starts, ends = min(moments), max(moments)
    goes_on = lanes.is_newest and (running or any(bar.is_open for bar in lanes.bars))
    shows_now = goes_on and lanes.clock == "server"
    if shows_now:
        ends = max(ends, lanes.now_us)
    ends = max(ends, starts + US)
    silences = find_silences(lanes.session_events, ends)
    spans = lease_spans(lanes.session_events, ends)
    crash = next((span.crash_us for span in spans if span.crash_us is not None), None)
    first, last = _chosen_range(only, starts, ends, crash)
    bars = [bar for bar in lanes.bars if _overlaps(bar, first, last, ends)]
    moments += [span.crash_us for span in spans if span.crash_us is not None]
    right = 95.5 if shows_now and last == ends else 98.5
    canvas = _Canvas(
        build_axis(moments, first, last, zoom=zoom, right=right),
        lanes.now_us if shows_now and last == ends else None,
    )
    top = HEAD
    folded = 0
    top = _draw_leases(canvas, lanes, spans, silences, top, ends)
    lanes_drawn = group_by_lane(lanes)
    if only:
        shown = {id(bar) for bar in bars}
        for lane in lanes_drawn:
            lane.bars = [bar for bar in lane.bars if id(bar) in shown]
    level = _merge_level(lanes_drawn)
    for lane in lanes_drawn:
        if lane.bars:
            top, dropped = _draw_lane(canvas, lane, level, top, ends, address)
            folded += dropped
    top = _draw_events(canvas, lanes, top)
    top = _draw_gaps(canvas, lanes, top)
    back = _draw_back(canvas, top)
    inner = SafeString("".join([*back.parts, *canvas.parts]))
    drawing = Drawing(top + 1, starts, ends, inner, len(lanes.bars), folded, canvas.heads)
    drawing.gaps = [elapsed(gap.cut_us) for gap in canvas.axis.gaps]
    drawing.zoom, drawing.has_crash = zoom, crash is not None
    drawing.outside = len(lanes.bars) - len(bars)
    if canvas.axis.gaps or lanes.whole_us is not None or only:
        drawing.overview = _draw_overview(lanes, canvas.axis, starts, ends, crash)
    return drawing


def _chosen_range(only: str, starts_us: int, ends_us: int, crash_us: int | None) -> tuple[int, int]:
    """Return the time range that is drawn."""
    if only == "hour" and ends_us - HOUR_US > starts_us:
        return ends_us - HOUR_US, ends_us
    if only == "crash" and crash_us is not None:
        return max(starts_us, crash_us - RANGE_US), min(ends_us, crash_us + RANGE_US)
    return starts_us, ends_us


def _overlaps(bar: Bar, first_us: int, last_us: int, ends_us: int) -> bool:
    stops = ends_us if bar.is_open else bar.moves[-1].at_us
    return bar.starts_us <= last_us and stops >= first_us


def _draw_back(canvas: _Canvas, height: int) -> _Canvas:
    """Return what is behind the bars: lane rules, ticks, gaps and the present."""
    back = _Canvas(canvas.axis, canvas.now_us)
    top = HEAD
    for head in canvas.heads:
        css = "grid is-sub" if head.is_sub else "grid"
        back.add('<line class="{}" x1="0" x2="100%" y1="{}" y2="{}"/>', css, top, top)
        top += head.rows * ROW
    now = None if canvas.now_us is None else canvas.x(canvas.now_us)
    room = canvas.axis.per_cent(CHARACTER * 8)
    for tick in axis_ticks(canvas.axis):
        form = '<line class="grid" x1="{}%" x2="{}%" y1="18" y2="{}"/>'
        back.add(form, tick.x, tick.x, height)
        is_free = now is None or abs(now - tick.x) > room
        if is_free and not any(_touches(gap, tick.x, room / 2) for gap in canvas.axis.gaps):
            form = '<text class="dim" x="{}%" y="13" text-anchor="middle">{}</text>'
            back.add(form, tick.x, tick.label)
    for gap in canvas.axis.gaps:
        _draw_cut(back, gap, height)
    if now is not None:
        form = '<line class="now" x1="{}%" x2="{}%" y1="18" y2="{}"/>'
        back.add(form, now, now, height)
        back.add('<text class="now-word" x="{}%" y="13" text-anchor="middle">now</text>', now)
    return back


def _touches(gap: AxisSpan, x: float, room: float) -> bool:
    return gap.left - room / 2 < x < gap.right + room / 2


def _draw_cut(canvas: _Canvas, gap: AxisSpan, height: int) -> None:
    """Draw a gap that is cut: a plain band with torn edges, and its length."""
    words = elapsed(gap.cut_us)
    width = round(gap.right - gap.left, 2)
    left, right = round(gap.left, 2), round(gap.right, 2)
    canvas.add(
        '<g><title>{}</title><rect class="gap" x="{}%" width="{}%" y="0" height="{}"/>'
        '<rect fill="url(#tear)" x="{}%" width="4" y="0" height="{}"/>'
        '<rect fill="url(#tear)" x="{}%" width="4" y="0" height="{}"/></g>',
        f"{words} without activity, cut out",
        left,
        width,
        height,
        left,
        height,
        right,
        height,
    )
    if canvas.axis.per_cent(CHARACTER * len(words)) <= width + 1.5:
        middle = round((left + right) / 2, 2)
        form = '<text class="dim" x="{}%" y="13" text-anchor="middle">{}</text>'
        canvas.add(form, middle, words)


def _merge_level(lanes: Sequence[Lane]) -> int:
    """Return the lowest level of merging that gives at most MOST_DRAWN bars."""
    for level in range(MOST_MERGED):
        if sum(len(merge_bars(lane.bars, level)) for lane in lanes) <= MOST_DRAWN:
            return level
    return MOST_MERGED


def _draw_lane(
    canvas: _Canvas,
    lane: Lane,
    level: int,
    top: int,
    ends_us: int,
    address: Callable[[Any], str],
) -> tuple[int, int]:
    """Draw a lane; return where the next one begins, and how many effects do not fit."""
    placed, dropped = place_bars(canvas.axis, merge_bars(lane.bars, level), ends_us)
    while dropped and level < MOST_MERGED:  # fewer bars, so that no failure is left out
        level += 1
        placed, dropped = place_bars(canvas.axis, merge_bars(lane.bars, level), ends_us)
    for item in placed:
        _draw_bar(canvas, item, top + item.row * ROW, ends_us, address)
    rows = max((item.row for item in placed), default=0) + 1
    canvas.heads.append(
        LaneHead(
            lane.name,
            rows,
            lane.worker,
            lane.whole_name,
            lane.whole_worker,
            lane.key,
            lane.effects,
            lane.is_sub,
        )
    )
    return top + rows * ROW, dropped


def _draw_bar(
    canvas: _Canvas, placed: PlacedBar, top: int, ends_us: int, address: Callable[[Any], str]
) -> None:
    item, bar, y = placed.drawn, placed.drawn.first, top + 12
    canvas.add('<a href="{}"><title>{}</title>', address(bar.effect), item.words)
    starts, stops = item.starts_us, item.stops_us(ends_us)
    left, right = canvas.x(starts), canvas.x(stops)
    final = _end_shape(item.worst)
    shapes = [(right, final)]
    late_words = ""
    if len(item.bars) > 1:
        _add_segment(canvas, final[0], left, right, y)
    else:
        for before, after in zip(bar.moves, [*bar.moves[1:], None], strict=True):
            if after is not None or bar.is_open:
                until = ends_us if after is None else after.at_us
                _draw_segment(canvas, bar, before, until, y, last=after is None)
        shapes += _step_shapes(canvas, bar)
        late_words = _draw_lateness(canvas, bar, y)
        if bar.state == "awaiting approval" and canvas.now_us is not None:
            form = '<line class="ahead is-awaiting" x1="{}%" x2="100%" y1="{}" y2="{}"/>'
            canvas.add(form, round(right + 0.6, 2), y, y)
    drawn_shapes: list[tuple[float, tuple[str, str]]] = []
    room = canvas.axis.per_cent(13)
    # From last to first: without space for all, the later shapes are drawn.
    for x, shape in shapes:
        if not drawn_shapes or drawn_shapes[-1][0] - x >= room:
            drawn_shapes.append((x, shape))
    for x, (css, shape_id) in reversed(drawn_shapes):
        _draw_shape(canvas, x, y, css, shape_id)
    _draw_label(canvas, placed, (left, right), top + 29, final[0], late_words)
    canvas.parts.append("</a>")


def _step_shapes(canvas: _Canvas, bar: Bar) -> list[tuple[float, tuple[str, str]]]:
    """Return the shapes of a bar's steps from last to first, without its end."""
    timed_steps = bar.moves if bar.is_open else bar.moves[:-1]
    is_late = bar.run is not None and bar.run.is_late
    # Permission that was granted without a gate is not drawn.
    return [
        (
            canvas.x(step.at_us),
            _LATE if is_late and step.what == "dispatched" else _step_shape(step),
        )
        for step in reversed(timed_steps)
        if step.what in _SHAPES
    ]


def _draw_lateness(canvas: _Canvas, bar: Bar, y: int) -> str:
    """Draw from the end of the permission to the run, red; return the words for it."""
    run = bar.run
    dispatched = next(
        (step for step in reversed(bar.moves) if step.what in ("dispatched", "acknowledged")), None
    )
    if run is None or not run.is_late or dispatched is None:
        return ""
    if run.late_us and run.permission_end_us is not None:
        end, x = canvas.x(run.permission_end_us), canvas.x(dispatched.at_us)
        form = '<path class="span" d="M0 -7V7"/>'
        canvas.add('<svg class="pin" x="{}%" y="{}">{}</svg>', end, y, SafeString(form))
        form = '<line class="span" x1="{}%" x2="{}%" y1="{}" y2="{}"/>'
        canvas.add(form, end, x, y, y)
    return run.gap_words


def _draw_label(
    canvas: _Canvas,
    placed: PlacedBar,
    ends: tuple[float, float],
    y: int,
    css: str,
    late_words: str,
) -> None:
    """Draw the words below a bar; of a late run, the lateness stands at its end."""
    bar, (left, right) = placed.drawn.worst, ends
    stands_out = bar.is_error or bar.state in ("unknown", "awaiting approval", "failed")
    note = f"note {css}" if stands_out else "dim"
    label, x = placed.label, left if placed.anchor == "start" else right
    if late_words:
        note = "note is-danger"
        plain = placed.drawn.label()
        room = canvas.axis.per_cent(CHARACTER * (len(plain) + len(late_words) + 4))
        if label and right - left > room:
            form = '<text class="note is-danger plated" x="{}%" y="{}" text-anchor="end">{}</text>'
            canvas.add(form, right, y, late_words)
            label, note, x = plain, "dim", left
    if label:
        anchor = SafeString(' text-anchor="end"') if x == right != left else SafeString("")
        form = '<text class="{} plated" x="{}%" y="{}"{}>{}</text>'
        canvas.add(form, note, x, y, anchor, label)


def _end_shape(bar: Bar) -> tuple[str, str]:
    if bar.is_error:
        return _SHAPES["failed"]
    if bar.run is not None and bar.run.is_late and bar.state == "acknowledged":
        return _LATE
    return _SHAPES.get(bar.state, _SHAPES["planned"])


def _step_shape(step: Step) -> tuple[str, str]:
    """Return the shape of a step; an unknown or failed answer gets its own shape."""
    return _SHAPES[{"unknown": "unknown", "error": "failed"}.get(step.outcome, step.what)]


def _draw_segment(
    canvas: _Canvas, bar: Bar, step: Step, until_us: int, y: int, *, last: bool
) -> None:
    """Draw the line between entries: dashed waits, solid runs, hatched is unknown."""
    left, right = canvas.x(step.at_us), canvas.x(until_us)
    if last and bar.state == "unknown":
        form = (
            '<rect class="open is-unknown" fill="url(#hatch-unknown)" x="{}%" width="{}%" y="{}"'
            ' height="10"/>'
        )
        canvas.add(form, left, round(max(right - left, 0.2), 2), y - 5)
        return
    if right - left < 0.05:
        return
    if step.what in ("dispatched", "probed"):
        late = bar.run is not None and bar.run.is_late
        css = "is-danger" if late else _end_shape(bar)[0] if not last else "is-dispatched"
        _add_segment(canvas, css, left, right, y)
        return
    run = bar.run
    if step.what in ("ruled", "granted") and run is not None and run.permission_end_us is not None:
        ends = canvas.x(min(run.permission_end_us, until_us))
        if ends > left:
            form = '<rect class="valid" x="{}%" width="{}%" y="{}" height="14"/>'
            canvas.add(form, left, round(ends - left, 2), y - 7)
        return
    css = "is-awaiting" if step.what in ("awaiting", "voted") else "is-planned"
    form = '<line class="wait {}" x1="{}%" x2="{}%" y1="{}" y2="{}"/>'
    canvas.add(form, css, left, right, y, y)


def _add_segment(canvas: _Canvas, css: str, left: float, right: float, y: int) -> None:
    form = '<rect class="seg {}" x="{}%" width="{}%" y="{}" height="8"/>'
    canvas.add(form, css, left, round(max(right - left, 0.1), 2), y - 4)


def _draw_shape(canvas: _Canvas, x: float, y: float, css: str, shape: str) -> None:
    form = '<svg class="pin {}" x="{}%" y="{}"><use href="#m-{}"/></svg>'
    canvas.add(form, css, x, y, shape)


def _draw_leases(
    canvas: _Canvas,
    lanes: TimelineWindow,
    spans: Sequence[LeaseSpan],
    silences: list[Silence],
    top: int,
    ends_us: int,
) -> int:
    """Draw one bar per epoch, hatched while silent; a crash is at lease expiry."""
    if not spans and not silences and not lanes.minutes:
        return top
    used = Counter(
        (bar.run.lease_epoch, bar.run.process)
        for bar in lanes.bars
        if bar.run is not None and bar.run.process
    )
    # Journal entries name no process: of several under one epoch, that with the most effects.
    workers = {epoch: process for (epoch, process), _ in reversed(used.most_common())}
    canvas.heads.append(LaneHead("worker", 1, "lease, heartbeats" if lanes.minutes else "lease"))
    for span in spans:
        left, right = canvas.x(span.starts_us), canvas.x(span.ends_us)
        number = int(span.epoch) if span.epoch.isdigit() else None
        worker = plain_label(workers.get(number, ""), 16)
        words = f"{worker}, epoch {span.epoch}" if worker else f"epoch {span.epoch}"
        form = '<rect class="lease" x="{}%" width="{}%" y="{}" height="14"><title>{}</title></rect>'
        canvas.add(form, left, round(max(right - left, 0.2), 2), top + 4, words)
        if right - left > canvas.axis.per_cent(CHARACTER * len(words) + 14):
            start = round(left + canvas.axis.per_cent(7), 2)
            canvas.add('<text x="{}%" y="{}">{}</text>', start, top + 15, words)
    for silence in silences:
        left, right = canvas.x(silence.starts_us), canvas.x(silence.ends_us)
        form = (
            '<rect class="fenced" fill="url(#hatch-quiet)" x="{}%" width="{}%" y="{}" height="14">'
            "<title>{}</title></rect>"
        )
        width = round(max(right - left, 0.2), 2)
        canvas.add(form, left, width, top + 4, _describe_silence(silence))
    for span in spans:  # drawn last: the next holder's bar starts where this one ends
        if span.crash_us is not None:
            canvas.add("<g><title>{}</title>", f"epoch {span.epoch} was lost: no more heartbeats")
            _draw_shape(canvas, canvas.x(span.crash_us), top + 11, "is-failed crash", "failed")
            canvas.parts.append("</g>")
    _draw_heartbeats(canvas, lanes, top, ends_us)
    return top + ROW


def _describe_silence(silence: Silence) -> str:
    return f"{elapsed(silence.ends_us - silence.starts_us)} silent"


def _draw_heartbeats(canvas: _Canvas, lanes: TimelineWindow, top: int, ends_us: int) -> None:
    """Draw a stroke per minute with heartbeats, only as many as can be distinguished.

    A stroke is in the middle of its minute, as far as that is within the range.
    """
    if not lanes.minutes:
        return
    starts_us = min(event.at_us for event in lanes.session_events) if lanes.session_events else 0
    least = max(canvas.axis.per_cent(5), 100 / MOST_BEATS)
    before = -least
    for minute_us, heartbeats, moved in lanes.minutes:
        x = canvas.x(min(max(minute_us + MINUTE_US // 2, starts_us), ends_us))
        if x - before < least:
            continue
        before = x
        words = f"{heartbeats} heartbeat{'' if heartbeats == 1 else 's'}, {moved} with progress"
        form = '<rect class="{}" x="{}%" y="{}" width="1.5" height="5"><title>{}</title></rect>'
        canvas.add(form, "heartbeat moved" if moved else "heartbeat", x, top + 23, words)


def _draw_events(canvas: _Canvas, lanes: TimelineWindow, top: int) -> int:
    """Draw session events; a mark has a label where that overlaps nothing."""
    first, last = canvas.axis.starts_us, canvas.axis.ends_us
    room = canvas.axis.per_cent
    marks: list[tuple[float, str, str, str]] = []
    for event in lanes.session_events:
        if event.kind in _MARKS and first <= event.at_us <= last:
            x, (shape, word) = canvas.x(event.at_us), _MARKS[event.kind]
            if not marks or x - marks[-1][0] >= room(MIN_MARK_DISTANCE):
                marks.append((x, shape, word, _describe_mark(event, word)))
    if not marks:
        return top
    canvas.heads.append(LaneHead("events", 1))
    present = 100.0 if canvas.now_us is None else canvas.x(canvas.now_us)
    label_end = 0.0
    for number, (x, shape, word, title) in enumerate(marks):
        canvas.add("<g><title>{}</title>", title)
        _draw_shape(canvas, x, top + 16, "is-failed" if shape == "warn" else "", shape)
        width = room(12 + CHARACTER * len(word))
        after = min(
            marks[number + 1][0] - room(8) if number + 1 < len(marks) else 100.0,
            present if x < present else 100.0,
        )
        form = '<text x="{}%" y="{}" class="dim" text-anchor="{}">{}</text>'
        if x + width <= after:
            canvas.add(form, round(x + room(11), 2), top + 20, "start", word)
            label_end = x + width
        elif x - width >= label_end:
            canvas.add(form, round(x - room(11), 2), top + 20, "end", word)
            label_end = x + room(10)
        else:
            label_end = x + room(10)
        canvas.parts.append("</g>")
    return top + ROW


def _describe_mark(event: SessionEvent, word: str) -> str:
    """Return the title of a mark: what it is, and by which rule."""
    facts = parse_body(event.facts or "{}")
    if event.kind in STUCK_KINDS:
        return f"{word}: {name_rule(facts)}"
    if event.kind == "integrity.violation":
        return f"{word}: {VIOLATION_LABELS.get(str(facts.get('violation')), '')}"
    if event.kind == "control.fired":
        return f"{word}: {CONTROL_LABELS.get(str(facts.get('control')), '')}"
    return word


def _draw_gaps(canvas: _Canvas, lanes: TimelineWindow, top: int) -> int:
    if not lanes.gaps:
        return top
    canvas.heads.append(LaneHead("sequence", 1))
    for gap in lanes.gaps:
        x = canvas.x(gap.at_us)
        canvas.add("<g><title>{}</title>", f"{gap.source}: {_describe_gap(gap.first, gap.last)}")
        canvas.add('<rect class="notch" x="{}%" y="{}" width="12" height="12"/>', x, top + 10)
        canvas.parts.append("</g>")
    first = lanes.gaps[0]
    note = f"{_describe_gap(first.first, first.last)}{' and more' if len(lanes.gaps) > 1 else ''}"
    x, room = canvas.x(first.at_us), canvas.axis.per_cent
    is_before = x + room(16 + CHARACTER * len(note)) > 100
    form = '<text x="{}%" y="{}" class="note is-failed" text-anchor="{}">{}</text>'
    place = round(x - room(6) if is_before else x + room(18), 2)
    canvas.add(form, place, top + 20, "end" if is_before else "start", note)
    return top + ROW


def _describe_gap(first: int, last: int) -> str:
    return f"{last - first + 1} missing: {first}" + (f" to {last}" if last > first else "")


def _draw_overview(
    lanes: TimelineWindow, axis: Axis, starts_us: int, ends_us: int, crash_us: int | None
) -> SafeString:
    """Return the whole time true to scale, with frames around what is drawn above."""
    starts, ends = lanes.whole_us or (starts_us, ends_us)
    starts, ends = min(starts, starts_us), max(ends, ends_us)
    whole = Axis([AxisSpan(starts, ends, 0, 100)])
    canvas = _Canvas(whole)
    for span in axis.spans:
        if not span.cut_us:
            left, right = whole.x(span.starts_us), whole.x(span.ends_us)
            form = '<rect class="window" x="{}%" width="{}%" y="1" height="24"/>'
            canvas.add(form, left, round(max(right - left, 0.3), 2))
    drawn: dict[tuple[int, str], float] = {}
    for number, bar in enumerate(lanes.bars):
        left = whole.x(bar.starts_us)
        right = whole.x(ends_us if bar.is_open else bar.moves[-1].at_us)
        y = 4 + number % MAP_TRACKS * 4
        if bar.state == "unknown":
            css, extra = "is-unknown", SafeString(' fill="url(#hatch-unknown)"')
        else:
            late = bar.run is not None and bar.run.is_late
            css, extra = "is-danger" if late else _end_shape(bar)[0], SafeString("")
        form = '<rect class="{} {}"{} x="{}%" width="{}%" y="{}" height="3"/>'
        css_kind = "open" if bar.state == "unknown" else "seg"
        if left - drawn.get((y, css), -9) < 1:  # nothing to tell apart
            continue
        drawn[y, css] = left
        canvas.add(form, css_kind, css, extra, left, round(max(right - left, 0.4), 2), y)
    if crash_us is not None:
        x = whole.x(crash_us)
        canvas.add('<line class="crash-line" x1="{}%" x2="{}%" y1="1" y2="25"/>', x, x)
    for css, width in MAP_WIDTHS.items():
        canvas.add('<g class="{}">', css)
        _draw_map_labels(canvas, Axis(whole.spans, width=width), axis.gaps)
        canvas.parts.append("</g>")
    return SafeString("".join(canvas.parts))


def _draw_map_labels(canvas: _Canvas, whole: Axis, gaps: Sequence[AxisSpan]) -> None:
    """Draw the words of gaps, then the hours that touch none of them, for one width."""
    taken: list[tuple[float, float]] = []
    form = '<text class="dim" x="{}%" y="37" text-anchor="{}">{}</text>'
    for gap in gaps:
        left, right = whole.x(gap.starts_us), whole.x(gap.ends_us)
        length = elapsed(gap.cut_us)
        for words in (f"{length} without activity, cut out above", f"{length} cut"):
            room = whole.per_cent(CHARACTER * len(words))
            if room < right - left:
                middle = round((left + right) / 2, 2)
                canvas.add(form, middle, "middle", words)
                taken.append((middle - room / 2, middle + room / 2))
                break
    space = whole.per_cent(LABEL_DISTANCE)
    for tick in axis_ticks(whole):
        room = whole.per_cent(CHARACTER * len(tick.label))
        anchor, left = "middle", tick.x - room / 2
        if left < 0:
            anchor, left = "start", tick.x
        elif left + room > 100:
            anchor, left = "end", tick.x - room
        right = left + room
        if all(right + space < begins or ends + space < left for begins, ends in taken):
            canvas.add(form, tick.x, anchor, tick.label)
            taken.append((left, right))
