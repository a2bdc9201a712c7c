"""SVG of the lanes timeline.

Geometry in attributes, colour in classes, each bar a link.

Pure: `draw_timeline` turns a window (pages/timeline/lanes.py) into the markup that the page
includes. The content security policy allows no inline style. Patterns are named in attributes,
because `url(#…)` in a stylesheet would refer to the stylesheet.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from django.utils.safestring import SafeString

from pages.timeline.bars import MINUTE_US, Bar, Step, TimelineWindow
from pages.timeline.svg_layout import (
    CHARACTER,
    LEFT,
    RIGHT,
    ROW,
    WIDTH,
    Axis,
    PlacedBar,
    Silence,
    axis_ticks,
    find_silences,
    group_by_lane,
    lease_spans,
    merge_successful,
    place_bars,
)
from web.templatetags.gatebook import elapsed
from web.untrusted_text import format_markup

US: Final = 1_000_000
LABEL_LIFT: Final = 10  # extra height of rows with names above their bars
MIN_MARK_DISTANCE: Final = 7  # least distance of marks; of two closer marks, the first is drawn
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


@dataclass(slots=True)
class Drawing:
    """What the template needs: height, time range, the markup, and counts."""

    height: int
    starts_us: int
    ends_us: int
    inner: SafeString
    bars: int
    folded: int


@dataclass(slots=True)
class _Canvas:
    """The pieces of markup and the axis."""

    axis: Axis
    now_us: int | None = None  # where to draw the line of the present, if any
    parts: list[str] = field(default_factory=list)

    def x(self, at_us: int) -> float:
        return self.axis.x(at_us)

    def add(self, form: str, *parts: Any) -> None:
        self.parts.append(
            format_markup(
                form, *[part if isinstance(part, SafeString) else str(part) for part in parts]
            )
        )


def draw_timeline(
    lanes: TimelineWindow, address: Callable[[Any], str], running: bool
) -> Drawing | None:
    """Return the window as markup; None if it is empty.

    `address` returns an effect's page; `running`: the session is still running.
    """
    moments = [step.at_us for bar in lanes.bars for step in bar.steps] + [
        event.at_us for event in lanes.session_events
    ]
    moments += [starts_us for starts_us, _, _ in lanes.minutes[:1]] if not moments else []
    if not moments:
        return None
    starts, ends = min(moments), max(moments)
    goes_on = lanes.is_newest and (running or any(bar.is_open for bar in lanes.bars))
    if goes_on and lanes.clock == "server":
        ends = max(ends, lanes.now_us)
    ends = max(ends, starts + US)
    pad = (ends - starts) // 40
    canvas = _Canvas(
        Axis(starts - pad, ends + pad),
        lanes.now_us if goes_on and lanes.clock == "server" else None,
    )
    top = 22
    heads: list[str] = []
    folded = 0
    silences = find_silences(lanes.session_events, ends)
    top = _draw_leases(canvas, lanes, silences, top, ends)
    top = _draw_heartbeats(canvas, lanes, silences, top, starts, ends)
    for lane in group_by_lane(lanes):
        placed, dropped = place_bars(canvas.axis, merge_successful(lane.bars), ends)
        if dropped:  # merge successful bars, so that no failure is left out
            placed, dropped = place_bars(canvas.axis, merge_successful(lane.bars, mixed=True), ends)
        folded += dropped
        _draw_lane_head(canvas, top, lane.name, lane.worker, lane.whole_name, lane.whole_worker)
        lift = LABEL_LIFT if any(event.side == "above" for event in placed) else 0
        for event in placed:
            _draw_bar(canvas, event, top + 16 + lift + event.row * (ROW + lift), ends, address)
        rows = max((event.row for event in placed), default=0) + 1
        top += max(6 + (ROW + lift) * rows, 42 if lane.worker else 0)
    top = _draw_events(canvas, lanes, top)
    top = _draw_gaps(canvas, lanes, top)
    # The drawing is in UTC, whatever clock the reader chose; its axis says so.
    heads.append(SafeString('<text x="8" y="13" class="dim">UTC</text>'))
    for tick in axis_ticks(canvas.axis.starts_us, canvas.axis.ends_us):
        x = round(LEFT + (RIGHT - LEFT) * tick.x, 1)
        heads.append(
            format_markup(
                '<line class="grid" x1="{}" y1="20" x2="{}" y2="{}"/>', str(x), str(x), str(top)
            )
        )
        middle = round(min(x, WIDTH - CHARACTER * len(tick.label) / 2), 1)
        heads.append(
            format_markup(
                '<text x="{}" y="13" class="dim" text-anchor="middle">{}</text>',
                str(middle),
                tick.label,
            )
        )
    if canvas.now_us is not None:
        x = canvas.x(canvas.now_us)
        canvas.add('<line class="now" x1="{}" y1="18" x2="{}" y2="{}"/>', x, x, top)
    inner = SafeString("".join([*heads, *canvas.parts]))
    return Drawing(top + 4, starts, ends, inner, len(lanes.bars), folded)


def _draw_lane_head(
    canvas: _Canvas,
    top: int,
    name: str,
    where: str = "",
    whole_name: str = "",
    whole_where: str = "",
) -> None:
    """Draw a lane's name and the text below; a title has the full text if cut."""
    canvas.add('<line class="lane-rule" x1="0" y1="{}" x2="{}" y2="{}"/>', top, WIDTH, top)
    for css, y, words, full_text in (
        ("lane", top + 20, name, whole_name),
        ("dim", top + 34, where, whole_where),
    ):
        title = (
            format_markup("<title>{}</title>", full_text)
            if full_text not in ("", words)
            else SafeString("")
        )
        if words:
            canvas.add('<text class="{}" x="8" y="{}">{}{}</text>', css, y, title, words)


def _draw_bar(
    canvas: _Canvas, placed: PlacedBar, y: int, ends_us: int, address: Callable[[Any], str]
) -> None:
    item, bar = placed.drawn, placed.drawn.first
    canvas.add('<a href="{}"><title>{}</title>', address(bar.effect), item.words)
    left, right = canvas.x(item.starts_us), canvas.x(item.stops_us(ends_us))
    final = _end_shape(bar)
    shapes = [(right, final)]
    if len(item.bars) > 1:
        form = '<rect class="seg {}" x="{}" y="{}" width="{}" height="6"/>'
        canvas.add(form, final[0], left, y - 3, round(max(right - left, 1), 1))
    else:
        for before, after in zip(bar.moves, [*bar.moves[1:], None], strict=True):
            if after is not None or bar.is_open:
                _draw_segment(
                    canvas,
                    bar,
                    before,
                    ends_us if after is None else after.at_us,
                    y,
                    last=after is None,
                )
        timed_steps = bar.moves if bar.is_open else bar.moves[:-1]
        # Permission that was granted without a gate is not drawn.
        shapes += [
            (canvas.x(step.at_us), _step_shape(step))
            for step in reversed(timed_steps)
            if step.what in _SHAPES
        ]
    drawn_shapes: list[tuple[float, tuple[str, str]]] = []
    # From last to first: without space for all, the later shapes are drawn.
    for x, shape in shapes:
        if not drawn_shapes or drawn_shapes[-1][0] - x >= 12:
            drawn_shapes.append((x, shape))
    for x, (css, shape_id) in reversed(drawn_shapes):
        _draw_shape(canvas, x, y, css, shape_id)
    note = (
        f"note {final[0]}"
        if bar.is_error or bar.state in ("unknown", "awaiting approval", "failed")
        else ""
    )
    where = {
        "right": (right + 11, y + 4, "start"),
        "left": (left - 11, y + 4, "end"),
        "above": (left + 11, y - 9, "start"),
    }
    if placed.side:
        x, height, anchor = where[placed.side]
        form = '<text x="{}" y="{}" class="{}" text-anchor="{}">{}</text>'
        canvas.add(form, round(x, 1), height, note, anchor, placed.label)
    canvas.parts.append("</a>")


def _end_shape(bar: Bar) -> tuple[str, str]:
    if bar.is_error:
        return _SHAPES["failed"]
    return _SHAPES.get(bar.state, _SHAPES["planned"])


def _step_shape(step: Step) -> tuple[str, str]:
    """Return the shape of a step; an unknown or failed answer gets its own shape."""
    return _SHAPES[{"unknown": "unknown", "error": "failed"}.get(step.outcome, step.what)]


def _draw_segment(
    canvas: _Canvas, bar: Bar, step: Step, until_us: int, y: int, *, last: bool
) -> None:
    """Draw the line between entries: dashed waits, solid runs, hatched is unknown."""
    left, right = canvas.x(step.at_us), canvas.x(until_us)
    if right - left < 1:
        return
    running = step.what in ("dispatched", "probed")
    if last and bar.state == "unknown":
        form = (
            '<rect class="open" fill="url(#hatch-unknown)" x="{}" y="{}" width="{}" height="10"/>'
        )
        canvas.add(form, left, y - 5, round(right - left, 1))
        return
    if running:
        form = '<rect class="seg is-dispatched" x="{}" y="{}" width="{}" height="6"/>'
        canvas.add(form, left, y - 3, round(right - left, 1))
        return
    css = "is-awaiting" if step.what in ("awaiting", "voted") else "is-planned"
    canvas.add('<line class="wait {}" x1="{}" y1="{}" x2="{}" y2="{}"/>', css, left, y, right, y)


def _draw_shape(canvas: _Canvas, x: float, y: float, css: str, shape: str) -> None:
    canvas.add('<circle class="plate" cx="{}" cy="{}" r="7.5"/>', x, y)
    form = '<use class="shape {}" href="#{}" x="{}" y="{}" width="12" height="12"/>'
    canvas.add(form, css, shape, round(x - 6, 1), y - 6)


def _draw_leases(
    canvas: _Canvas, lanes: TimelineWindow, silences: list[Silence], top: int, ends_us: int
) -> int:
    """Draw one bar per epoch, hatched while silent; a crash is at lease expiry."""
    spans = lease_spans(lanes.session_events, ends_us)
    if not spans and not silences:
        return top
    _draw_lane_head(canvas, top, "lease")
    for span in spans:
        left, right = canvas.x(span.starts_us), canvas.x(span.ends_us)
        width = round(max(right - left, 2), 1)
        form = (
            '<rect class="lease" x="{}" y="{}" width="{}" height="16">'
            "<title>epoch {}</title></rect>"
        )
        canvas.add(form, left, top + 8, width, span.epoch)
        if width > 60:
            canvas.add(
                '<text x="{}" y="{}">epoch {}</text>', round(left + 6, 1), top + 20, span.epoch
            )
    for silence in silences:
        left, right = canvas.x(silence.starts_us), canvas.x(silence.ends_us)
        form = (
            '<rect class="fenced" fill="url(#hatch-quiet)" x="{}" y="{}" width="{}" height="16">'
            "{}</rect>"
        )
        title = format_markup("<title>{}</title>", _draw_silence(silence))
        canvas.add(form, left, top + 8, round(max(right - left, 2), 1), title)
    for span in spans:  # drawn last: the next holder's bar starts where this one ends
        if span.crash_us is not None:
            x = round(canvas.x(span.crash_us) - 5, 1)
            form = '<g><title>{}</title><path class="crash" d="M{} {}l10 10m0 -10l-10 10"/></g>'
            canvas.add(form, f"epoch {span.epoch} was lost: no more heartbeats", x, top + 11)
    return top + 32


def _draw_silence(silence: Silence) -> str:
    return f"{elapsed(silence.ends_us - silence.starts_us)} silent"


def _draw_heartbeats(
    canvas: _Canvas,
    lanes: TimelineWindow,
    silences: list[Silence],
    top: int,
    starts_us: int,
    ends_us: int,
) -> int:
    """Draw a stroke per minute.

    Its height is the number of heartbeats, progress is below it.

    A stroke is in the middle of its minute, as far as that is within the range.
    """
    if not lanes.minutes:
        return top
    _draw_lane_head(canvas, top, "heartbeats", "per minute")
    max_heartbeats = max(heartbeats for _, heartbeats, _ in lanes.minutes) or 1
    for minute_us, heartbeats, moved in lanes.minutes:
        x = canvas.x(min(max(minute_us + MINUTE_US // 2, starts_us), ends_us))
        height = round(3 + 13 * heartbeats / max_heartbeats, 1)
        form = (
            '<rect class="heartbeat" x="{}" y="{}" width="3" height="{}"><title>{}</title></rect>'
        )
        parts = f"{heartbeats} heartbeat{'' if heartbeats == 1 else 's'}, {moved} with progress"
        canvas.add(form, round(x - 1.5, 1), round(top + 24 - height, 1), height, parts)
        if moved:
            canvas.add(
                '<rect class="moved" x="{}" y="{}" width="3" height="4"/>',
                round(x - 1.5, 1),
                top + 27,
            )
    for silence in silences:
        left, right, words = (
            canvas.x(silence.starts_us),
            canvas.x(silence.ends_us),
            _draw_silence(silence),
        )
        if right - left > CHARACTER * len(words):
            form = '<text class="dim" x="{}" y="{}" text-anchor="middle">{}</text>'
            canvas.add(form, round((left + right) / 2, 1), top + 20, words)
    return top + 42


def _draw_events(canvas: _Canvas, lanes: TimelineWindow, top: int) -> int:
    """Draw session events; a mark has a label where that overlaps nothing."""
    marks: list[tuple[float, str, str]] = []
    for event in lanes.session_events:
        if event.kind in _MARKS:
            x, (shape, word) = canvas.x(event.at_us), _MARKS[event.kind]
            if not marks or x - marks[-1][0] >= MIN_MARK_DISTANCE:
                marks.append((x, shape, word))
    if not marks:
        return top
    _draw_lane_head(canvas, top, "events")
    present = WIDTH if canvas.now_us is None else canvas.x(canvas.now_us)
    label_end = 60.0  # right of the lane's name
    for number, (x, shape, word) in enumerate(marks):
        canvas.add("<g><title>{}</title>", word)
        _draw_shape(canvas, x, top + 16, "is-failed" if shape == "warn" else "", shape)
        width = 10 + CHARACTER * len(word)
        after = min(
            marks[number + 1][0] - 8 if number + 1 < len(marks) else WIDTH,
            present if x < present else WIDTH,
        )
        form = '<text x="{}" y="{}" class="dim" text-anchor="{}">{}</text>'
        if x + width <= after:
            canvas.add(form, round(x + 10, 1), top + 20, "start", word)
            label_end = x + width
        elif x - width >= label_end:
            canvas.add(form, round(x - 10, 1), top + 20, "end", word)
            label_end = x + 10
        else:
            label_end = x + 10
        canvas.parts.append("</g>")
    return top + 32


def _draw_gaps(canvas: _Canvas, lanes: TimelineWindow, top: int) -> int:
    if not lanes.gaps:
        return top
    _draw_lane_head(canvas, top, "sequence")
    for gap in lanes.gaps:
        x = canvas.x(gap.at_us)
        canvas.add("<g><title>{}</title>", f"{gap.source}: {_draw_gap(gap.first, gap.last)}")
        canvas.add(
            '<rect class="notch" x="{}" y="{}" width="14" height="12"/>', round(x - 7, 1), top + 10
        )
        canvas.parts.append("</g>")
    first = lanes.gaps[0]
    note = f"{_draw_gap(first.first, first.last)}{' and more' if len(lanes.gaps) > 1 else ''}"
    x = canvas.x(first.at_us)
    before = x + 14 + CHARACTER * len(note) > WIDTH
    form = '<text x="{}" y="{}" class="note is-failed" text-anchor="{}">{}</text>'
    canvas.add(
        form, round(x - 12 if before else x + 12, 1), top + 20, "end" if before else "start", note
    )
    return top + 32


def _draw_gap(first: int, last: int) -> str:
    return f"{last - first + 1} missing: {first}" + (f" to {last}" if last > first else "")
