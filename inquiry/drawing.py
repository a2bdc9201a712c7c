"""The timeline in lanes as SVG: geometry in attributes, colour in classes, every bar a link.

Pure: `draw` makes of a window (inquiry/lanes.py) the markup that the page includes. The policy of the pages allows no
inline style, and a pattern is named in an attribute because a stylesheet's `url(#…)` would point at the stylesheet.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from django.utils.safestring import SafeString

from inquiry.lanes import MINUTE_US, Bar, Beside, Lanes, Step
from journal.text import column_text
from journal.untrusted import markup, pieces

WIDTH: Final = 1160
LEFT, RIGHT = 150, 1138  # where the axis begins and ends
ROW: Final = 26
CHARACTER: Final = 6.1  # the width of a letter, about
MOST_ROWS: Final = 10  # of one lane; denser lanes lose their labels first, then bars
ALIKE: Final = 3  # so many calls of one tool in a row, all of which went well, are one bar
LABEL: Final = 30
_S: Final = 1_000_000
# What the ticks of the axis may stand apart.
_STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400),
    *(172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000),
)
MOST_TICKS: Final = 8
_SHAPES: Final[dict[str, tuple[str, str]]] = {  # what a fact did -> class and shape
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
    "compensated": ("is-compensated", "compensated"),
    "unknown": ("is-unknown", "unknown"),
    "awaiting approval": ("is-awaiting", "awaiting"),
}
_MARKS: Final[dict[str, tuple[str, str]]] = {  # a fact of the session -> shape and word
    "checkpoint.written": ("checkpoint", "checkpoint"),
    "handoff.written": ("handoff", "handoff"),
    "handoff.accepted": ("handoff", "handoff accepted"),
    "artifact.recorded": ("artifact", "artifact"),
    "session.resumed": ("running", "resumed"),
    "session.stuck": ("warn", "stuck"),
    "session.recovered": ("tick", "moves again"),
    "session.branched": ("undoable", "branched"),
    "session.merged": ("undoable", "merged"),
    "session.ended": ("stop", "ended"),
    "control.fired": ("warn", "control fired"),
    "integrity.violation": ("warn", "violation"),
    "integrity.fenced": ("warn", "fenced writer"),
    "integrity.conflict": ("warn", "conflict"),
}


@dataclass(slots=True)
class Drawn:
    """What is drawn as one bar: an effect, or several in a row that are alike."""

    bars: list[Bar]

    @property
    def first(self) -> Bar:
        return self.bars[0]

    @property
    def starts_us(self) -> int:
        return self.first.steps[0].at_us

    def stops_us(self, ends_us: int) -> int:
        """When the last of them ended, or `ends_us` while it is open."""
        return max(ends_us if bar.is_open else bar.moves[-1].at_us for bar in self.bars)

    @property
    def label(self) -> str:
        """What it is called: its tool, and the gist of the call or how often."""
        tool = self.first.effect.tool or "plan not arrived"
        if len(self.bars) > 1:
            return f"{plain(tool, LABEL - 6)} ×{len(self.bars)}"
        return plain(f"{tool} {self.first.gist}".strip(), LABEL)

    @property
    def words(self) -> str:
        """What it says to those who do not see it."""
        one = self.first
        if len(self.bars) > 1:
            return f"{one.effect} to {self.bars[-1].effect} {self.label}, {one.state}"
        count = one.effect.attempt_count
        tries = f", {count} attempts" if count > 1 else ""
        return f"{one.effect} {self.label}, {one.state}{tries}"


@dataclass(slots=True)
class Tick:
    """A line of the axis."""

    x: float
    label: str


@dataclass(slots=True)
class Drawing:
    """What the template needs: the height, the axis in words, and the markup within the frame."""

    height: int
    starts_us: int
    ends_us: int
    inner: SafeString
    bars: int
    folded: int


@dataclass(slots=True)
class _Canvas:
    """The pieces of markup so far, and where the axis stands."""

    starts_us: int
    ends_us: int
    parts: list[str] = field(default_factory=list)

    def x(self, at_us: int) -> float:
        share = (at_us - self.starts_us) / (self.ends_us - self.starts_us)
        return round(LEFT + min(max(share, 0.0), 1.0) * (RIGHT - LEFT), 1)

    def add(self, form: str, *parts: Any) -> None:
        self.parts.append(markup(form, *[part if isinstance(part, SafeString) else str(part) for part in parts]))


def draw(lanes: Lanes, address: Callable[[Any], str], running: bool) -> Drawing | None:
    """The window as markup; None when it holds nothing. `address` gives an effect's page; `running`: time goes on."""
    moments = [step.at_us for bar in lanes.bars for step in bar.steps] + [one.at_us for one in lanes.beside]
    moments += [starts_us for starts_us, _, _ in lanes.minutes[:1]] if not moments else []
    if not moments:
        return None
    starts, ends = min(moments), max(moments)
    goes_on = lanes.is_newest and (running or any(bar.is_open for bar in lanes.bars))
    if goes_on and lanes.clock == "server":
        ends = max(ends, lanes.now_us)
    ends = max(ends, starts + _S)
    pad = (ends - starts) // 40
    canvas = _Canvas(starts - pad, ends + pad)
    top = 22
    heads: list[str] = []
    folded = 0
    top = _lease_lane(canvas, lanes, top, ends)
    top = _beat_lane(canvas, lanes, top)
    for name, where, bars in _by_task(lanes):
        placed, dropped = _pack(canvas, _fold(bars), ends)
        folded += dropped
        _head(canvas, top, name, where)
        lift = 8 if any(one.label == "above" for one in placed) else 0
        for one in placed:
            _bar(canvas, one, top + 16 + lift + one.row * (ROW + lift), ends, address)
        rows = max((one.row for one in placed), default=0) + 1
        top += max(6 + (ROW + lift) * rows, 42 if where else 0)
    top = _mark_lane(canvas, lanes, top)
    top = _gap_lane(canvas, lanes, top)
    for tick in ticks(canvas.starts_us, canvas.ends_us):
        x = round(LEFT + (RIGHT - LEFT) * tick.x, 1)
        heads.append(markup('<line class="grid" x1="{}" y1="20" x2="{}" y2="{}"/>', str(x), str(x), str(top)))
        heads.append(markup('<text x="{}" y="13" class="dim" text-anchor="middle">{}</text>', str(x), tick.label))
    if goes_on and lanes.clock == "server":
        x = canvas.x(lanes.now_us)
        canvas.add('<line class="now" x1="{}" y1="18" x2="{}" y2="{}"/>', x, x, top)
    inner = SafeString("".join([*heads, *canvas.parts]))
    return Drawing(top + 4, starts, ends, inner, len(lanes.bars), folded)


def ticks(starts_us: int, ends_us: int) -> list[Tick]:
    """At most MOST_TICKS round moments between two, each with its share of the way and a label in UTC."""
    span = max(ends_us - starts_us, 1)
    step = next((one * _S for one in _STEPS_S if span / (one * _S) <= MOST_TICKS), _STEPS_S[-1] * _S)
    first = -(-starts_us // step) * step
    form = "%H:%M:%S" if step < 60 * _S else "%H:%M" if step < 86_400 * _S else "%Y-%m-%d"
    several_days = starts_us // (86_400 * _S) != ends_us // (86_400 * _S)
    if several_days and step < 86_400 * _S:
        form = f"%m-%d {form}"
    moments = range(first, ends_us, step)
    return [Tick((at - starts_us) / span, datetime.fromtimestamp(at / _S, UTC).strftime(form)) for at in moments]


def plain(text: str, limit: int) -> str:
    """Agents' text for a drawing, where no element can stand in it: hidden characters as their tokens, cut to fit."""
    shown = "".join(piece.shown or piece.raw for piece in pieces(column_text(text)[: limit * 2], one_line=True))
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _by_task(lanes: Lanes) -> list[tuple[str, str, list[Bar]]]:
    """Lanes in the order in which their first effects were told: name, who works there, bars."""
    found: dict[Any, list[Bar]] = {}
    for bar in lanes.bars:
        found.setdefault(bar.lane, []).append(bar)
    named = []
    for task, bars in found.items():
        handle, title, worker = lanes.tasks.get(task, ("", "effects", "")) if task is not None else ("", "effects", "")
        named.append((plain(title or handle, 20), plain(worker, 20), bars))
    return named


def _fold(bars: Sequence[Bar]) -> list[Drawn]:
    """Bars in order; a run of ALIKE and more of one tool that all went well is drawn as one."""

    def alike(bar: Bar) -> Any:
        plainly = bar.state == "acknowledged" and bar.effect.outcome == "ok" and bar.effect.attempt_count == 1
        return bar.effect.tool if plainly and not bar.effect.violates else bar.effect.id

    drawn: list[Drawn] = []
    for _, run in groupby(bars, key=alike):
        same = list(run)
        drawn += [Drawn(same)] if len(same) >= ALIKE else [Drawn([bar]) for bar in same]
    return drawn


@dataclass(slots=True)
class _Placed:
    """A bar in its row; `label` says on which side of it its name stands: right | left | above, or nowhere."""

    row: int
    drawn: Drawn
    label: str


def _pack(canvas: _Canvas, drawn: Sequence[Drawn], ends_us: int) -> tuple[list[_Placed], int]:
    """A row for each bar so that none covers another: with names where they fit, else without, else not at all."""
    for labelled in (True, False):
        free = [0.0] * MOST_ROWS
        placed: list[_Placed] = []
        dropped = 0
        for one in drawn:
            start, stop = canvas.x(one.starts_us) - 9, canvas.x(one.stops_us(ends_us)) + 11
            side, width = "", CHARACTER * len(one.label) + 8
            if labelled:
                side = "right" if stop + width <= WIDTH else "left" if start - width >= LEFT else "above"
                start, stop = start - (width if side == "left" else 0), stop + (width if side == "right" else 0)
            row = next((number for number, taken in enumerate(free) if taken <= start), None)
            if row is None:
                dropped += len(one.bars)
                continue
            free[row] = stop
            placed.append(_Placed(row, one, side))
        if not dropped or not labelled:
            return placed, dropped
    return [], len(drawn)


def _head(canvas: _Canvas, top: int, name: str, where: str = "") -> None:
    canvas.add('<line class="lane-rule" x1="0" y1="{}" x2="{}" y2="{}"/>', top, WIDTH, top)
    canvas.add('<text class="lane" x="8" y="{}">{}</text>', top + 20, name)
    if where:
        canvas.add('<text class="dim" x="8" y="{}">{}</text>', top + 34, where)


def _bar(canvas: _Canvas, placed: _Placed, y: int, ends_us: int, address: Callable[[Any], str]) -> None:
    one, bar = placed.drawn, placed.drawn.first
    canvas.add('<a href="{}"><title>{}</title>', address(bar.effect), one.words)
    left, right = canvas.x(one.starts_us), canvas.x(one.stops_us(ends_us))
    final = _final(bar)
    shapes = [(right, final)]
    if len(one.bars) > 1:
        form = '<rect class="seg {}" x="{}" y="{}" width="{}" height="6"/>'
        canvas.add(form, final[0], left, y - 3, round(max(right - left, 1), 1))
    else:
        for before, after in zip(bar.moves, [*bar.moves[1:], None], strict=True):
            if after is not None or bar.is_open:
                _segment(canvas, bar, before, ends_us if after is None else after.at_us, y, last=after is None)
        told = bar.moves if bar.is_open else bar.moves[:-1]
        # Leave that was given without asking is no moment of its own.
        shapes += [(canvas.x(step.at_us), _SHAPES[step.what]) for step in reversed(told) if step.what in _SHAPES]
    kept: list[tuple[float, tuple[str, str]]] = []
    for x, shape in shapes:  # from the last to the first: where there is no room for all, the later ones stand
        if not kept or kept[-1][0] - x >= 12:
            kept.append((x, shape))
    for x, (css, shape_id) in reversed(kept):
        _shape(canvas, x, y, css, shape_id)
    note = f"note {final[0]}" if bar.state in ("unknown", "awaiting approval", "failed") else ""
    where = {
        "right": (right + 11, y + 4, "start"),
        "left": (left - 11, y + 4, "end"),
        "above": (left + 11, y - 7, "start"),
    }
    if placed.label:
        x, height, anchor = where[placed.label]
        form = '<text x="{}" y="{}" class="{}" text-anchor="{}">{}</text>'
        canvas.add(form, round(x, 1), height, note, anchor, one.label)
    canvas.parts.append("</a>")


def _final(bar: Bar) -> tuple[str, str]:
    return _SHAPES.get(bar.state, _SHAPES["planned"])


def _segment(canvas: _Canvas, bar: Bar, step: Step, until_us: int, y: int, *, last: bool) -> None:
    """What stands between two facts: waiting is dashed, running is solid, an unknown end is hatched and open."""
    left, right = canvas.x(step.at_us), canvas.x(until_us)
    if right - left < 1:
        return
    running = step.what in ("dispatched", "probed")
    if last and bar.state == "unknown":
        form = '<rect class="open" fill="url(#hatch-unknown)" x="{}" y="{}" width="{}" height="10"/>'
        canvas.add(form, left, y - 5, round(right - left, 1))
        return
    if running:
        form = '<rect class="seg is-dispatched" x="{}" y="{}" width="{}" height="6"/>'
        canvas.add(form, left, y - 3, round(right - left, 1))
        return
    css = "is-awaiting" if step.what in ("awaiting", "voted") else "is-planned"
    canvas.add('<line class="wait {}" x1="{}" y1="{}" x2="{}" y2="{}"/>', css, left, y, right, y)


def _shape(canvas: _Canvas, x: float, y: float, css: str, shape: str) -> None:
    canvas.add('<circle class="plate" cx="{}" cy="{}" r="7.5"/>', x, y)
    form = '<use class="shape {}" href="#{}" x="{}" y="{}" width="12" height="12"/>'
    canvas.add(form, css, shape, round(x - 6, 1), y - 6)


def _lease_lane(canvas: _Canvas, lanes: Lanes, top: int, ends_us: int) -> int:
    """One bar for each epoch; silence is hatched over it, and a crash stands where the lease was lost."""
    spans = spans_of(lanes.beside, ends_us)
    if not spans and not any(one.kind == "session.silent" for one in lanes.beside):
        return top
    _head(canvas, top, "lease")
    for span in spans:
        left, right = canvas.x(span.starts_us), canvas.x(span.ends_us)
        width = round(max(right - left, 2), 1)
        form = '<rect class="lease" x="{}" y="{}" width="{}" height="16"><title>epoch {}</title></rect>'
        canvas.add(form, left, top + 8, width, span.epoch)
        if width > 60:
            canvas.add('<text x="{}" y="{}">epoch {}</text>', round(left + 6, 1), top + 20, span.epoch)
        if span.lost:
            canvas.add('<path class="crash" d="M{} {}l10 10m0 -10l-10 10"/>', round(right - 5, 1), top + 11)
    silent: int | None = None
    for one in [*lanes.beside, Beside(ends_us, "session.heard", 0, "{}", None)]:
        if one.kind == "session.silent":
            silent = one.at_us
        elif one.kind == "session.heard" and silent is not None:
            left, right = canvas.x(silent), canvas.x(one.at_us)
            form = '<rect class="fenced" fill="url(#hatch-quiet)" x="{}" y="{}" width="{}" height="16"/>'
            canvas.add(form, left, top + 8, round(max(right - left, 2), 1))
            silent = None
    return top + 32


def _beat_lane(canvas: _Canvas, lanes: Lanes, top: int) -> int:
    """A stroke for each minute: as high as it was often heard; work that moved stands below it in the accent."""
    if not lanes.minutes:
        return top
    _head(canvas, top, "heartbeat", "a minute")
    most = max(beats for _, beats, _ in lanes.minutes) or 1
    for starts_us, beats, moved in lanes.minutes:
        x = canvas.x(starts_us + MINUTE_US // 2)
        height = round(3 + 13 * beats / most, 1)
        form = '<rect class="beat" x="{}" y="{}" width="3" height="{}"><title>{}</title></rect>'
        told = f"{beats} beat{'' if beats == 1 else 's'}, {moved} of progress"
        canvas.add(form, round(x - 1.5, 1), round(top + 24 - height, 1), height, told)
        if moved:
            canvas.add('<rect class="moved" x="{}" y="{}" width="3" height="4"/>', round(x - 1.5, 1), top + 27)
    return top + 42


@dataclass(frozen=True, slots=True)
class Span:
    """One holder's time, as far as the window tells."""

    starts_us: int
    ends_us: int
    epoch: str
    lost: bool


def spans_of(beside: Sequence[Beside], ends_us: int) -> list[Span]:
    """Leases of the session as stretches of time: from one acquisition to its release, its loss or the next."""
    spans: list[Span] = []
    since: Beside | None = None
    for one in beside:
        if not one.kind.startswith("lease."):
            continue
        if since is not None:
            spans.append(Span(since.at_us, one.at_us, _epoch(since), one.kind != "lease.released"))
        since = one if one.kind == "lease.acquired" else None
    if since is not None:
        spans.append(Span(since.at_us, ends_us, _epoch(since), lost=False))
    return spans


def _epoch(one: Beside) -> str:
    return str(one.epoch) if one.epoch is not None else "?"


def _mark_lane(canvas: _Canvas, lanes: Lanes, top: int) -> int:
    marks = [one for one in lanes.beside if one.kind in _MARKS]
    if not marks:
        return top
    _head(canvas, top, "marks")
    taken = -100.0
    named = -100.0
    for one in marks:
        x = canvas.x(one.at_us)
        shape, word = _MARKS[one.kind]
        if x - taken < 7:
            continue
        css = "is-failed" if shape == "warn" else ""
        canvas.add("<g><title>{}</title>", word)
        _shape(canvas, x, top + 16, css, shape)
        if x - 4 > named and x + 12 + CHARACTER * len(word) <= WIDTH:
            canvas.add('<text x="{}" y="{}" class="dim">{}</text>', round(x + 10, 1), top + 20, word)
            named = x + 12 + CHARACTER * len(word)
        canvas.parts.append("</g>")
        taken = x
    return top + 32


def _gap_lane(canvas: _Canvas, lanes: Lanes, top: int) -> int:
    if not lanes.gaps:
        return top
    _head(canvas, top, "sequence")
    for gap in lanes.gaps:
        x = canvas.x(gap.at_us)
        canvas.add("<g><title>{}</title>", f"{gap.source}: {_missing(gap.first, gap.last)}")
        canvas.add('<rect class="notch" x="{}" y="{}" width="14" height="12"/>', round(x - 7, 1), top + 10)
        canvas.parts.append("</g>")
    first = lanes.gaps[0]
    note = f"{_missing(first.first, first.last)}{' and more' if len(lanes.gaps) > 1 else ''}"
    x = canvas.x(first.at_us)
    before = x + 14 + CHARACTER * len(note) > WIDTH
    form = '<text x="{}" y="{}" class="note is-failed" text-anchor="{}">{}</text>'
    canvas.add(form, round(x - 12 if before else x + 12, 1), top + 20, "end" if before else "start", note)
    return top + 32


def _missing(first: int, last: int) -> str:
    return f"{last - first + 1} missing: {first}" + (f" to {last}" if last > first else "")
