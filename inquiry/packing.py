"""Where everything of a timeline in lanes stands: its axis, rows without overlaps, and how its leases went.

Pure, and without a word of markup: inquiry/drawing.py draws what is placed here. Lengths are units of the drawing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

import orjson

from inquiry.bars import Bar, Beside, Lanes
from inquiry.shown import short_process
from journal.text import column_text
from journal.untrusted import pieces

WIDTH: Final = 1160
LEFT, RIGHT = 150, 1138  # where the axis begins and ends
ROW: Final = 26
CHARACTER: Final = 6.1  # the width of a letter, about
MOST_ROWS: Final = 10  # of one lane; denser lanes lose their labels first, then bars
ALIKE: Final = 3  # so many calls of one tool in a row, all of which went well, are one bar
LABEL: Final = 30
LONG_LABEL: Final = 56  # where it takes no further row
_S: Final = 1_000_000
# What the ticks of the axis may stand apart.
_STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400),
    *(172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000),
)
MOST_TICKS: Final = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """The time that the drawing shows, from edge to edge."""

    starts_us: int
    ends_us: int

    def x(self, at_us: int) -> float:
        """Where a moment stands; what is outside stands at the edge."""
        share = (at_us - self.starts_us) / (self.ends_us - self.starts_us)
        return round(LEFT + min(max(share, 0.0), 1.0) * (RIGHT - LEFT), 1)


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

    def label(self, most: int = LABEL) -> str:
        """What it is called in `most` letters: its tool, and the gist of the call or how often."""
        tool, gist = self.first.effect.tool or "plan not arrived", self.first.gist
        if len({bar.effect.tool for bar in self.bars}) > 1:
            return f"{len(self.bars)} calls, all well"
        if len(self.bars) > 1:
            return f"{plain(tool, most - 6)} ×{len(self.bars)}"
        # "git.push git push origin main" says one thing twice.
        says_itself = gist.casefold().startswith(f"{tool.replace('.', ' ')} ".casefold())
        return plain(gist if says_itself else f"{tool} {gist}".strip(), most)

    @property
    def words(self) -> str:
        """What it says to those who do not see it."""
        one = self.first
        if len(self.bars) > 1:
            return f"{one.effect} to {self.bars[-1].effect} {self.label()}, {one.state}"
        count = one.effect.attempt_count
        tries = f", {count} attempts" if count > 1 else ""
        error = " with an error" if one.is_error else ""
        return f"{one.effect} {self.label()}, {one.state}{error}{tries}"


@dataclass(slots=True)
class Tick:
    """A line of the axis."""

    x: float
    label: str


@dataclass(slots=True)
class Lane:
    """The bars of one task: its name and its worker, cut to fit, both in full, and what it did."""

    name: str
    worker: str
    whole_name: str
    whole_worker: str
    bars: list[Bar]


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


def by_task(lanes: Lanes) -> list[Lane]:
    """Lanes in the order in which their first effects were told."""
    found: dict[Any, list[Bar]] = {}
    for bar in lanes.bars:
        found.setdefault(lanes.lane_of(bar), []).append(bar)
    named = []
    for task, bars in found.items():
        handle, title, worker = lanes.tasks.get(task, ("", "effects", "")) if task is not None else ("", "effects", "")
        whose = Lane(
            plain(title or handle, 22), plain(short_process(worker), 22), plain(title, 200), plain(worker, 200), bars
        )
        named.append(whose)
    return named


def fold(bars: Sequence[Bar], *, mixed: bool = False) -> list[Drawn]:
    """Bars in order; a run of ALIKE and more that all went well is drawn as one: of one tool, or `mixed`, of any."""

    def alike(bar: Bar) -> Any:
        plainly = bar.state == "acknowledged" and bar.effect.outcome == "ok" and bar.effect.attempt_count == 1
        if not plainly or bar.effect.violates:
            return bar.effect.id
        return "" if mixed else bar.effect.tool

    drawn: list[Drawn] = []
    for _, run in groupby(bars, key=alike):
        same = list(run)
        drawn += [Drawn(same)] if len(same) >= ALIKE else [Drawn([bar]) for bar in same]
    return drawn


@dataclass(slots=True)
class Placed:
    """A bar in its row; `label` stands on one `side` of it: right | left | above, or nowhere."""

    row: int
    drawn: Drawn
    side: str
    label: str


def pack(axis: Axis, drawn: Sequence[Drawn], ends_us: int) -> tuple[list[Placed], int]:
    """A row for each bar so that none covers another: with names where they fit, else without, else not at all.

    Names are told at length where that takes no further row. The second value is how many effects have no room.
    """
    short, dropped = _packed(axis, drawn, ends_us, LABEL)
    if dropped:
        return _packed(axis, drawn, ends_us, 0)
    long, lost = _packed(axis, drawn, ends_us, LONG_LABEL)
    return (short, 0) if lost or _rows(long) > _rows(short) else (long, 0)


def _rows(placed: Sequence[Placed]) -> int:
    return max((one.row for one in placed), default=0)


def _packed(axis: Axis, drawn: Sequence[Drawn], ends_us: int, most: int) -> tuple[list[Placed], int]:
    free = [0.0] * MOST_ROWS
    placed: list[Placed] = []
    dropped = 0
    for one in drawn:
        start, stop = axis.x(one.starts_us) - 9, axis.x(one.stops_us(ends_us)) + 11
        label = one.label(most) if most else ""
        side, width = "", CHARACTER * len(label) + 8
        if label:
            side = "right" if stop + width <= WIDTH else "left" if start - width >= LEFT else "above"
            start, stop = start - (width if side == "left" else 0), stop + (width if side == "right" else 0)
        row = next((number for number, taken in enumerate(free) if taken <= start), None)
        if row is None:
            dropped += len(one.bars)
            continue
        free[row] = stop
        placed.append(Placed(row, one, side, label))
    return placed, dropped


@dataclass(frozen=True, slots=True)
class Span:
    """One holder's time, as far as the window tells. `crash_us` is when it was given up for dead, None where not."""

    starts_us: int
    ends_us: int
    epoch: str
    crash_us: int | None = None


@dataclass(frozen=True, slots=True)
class Silence:
    """A time without a beat, from the last one on; `heard` when the same holder spoke again."""

    starts_us: int
    ends_us: int
    heard: bool


def spans_of(beside: Sequence[Beside], ends_us: int) -> list[Span]:
    """Leases of the session as stretches of time: from one acquisition to its release, its loss or the next.

    Who fell silent and was not heard again crashed when its lease ran out; who lost its lease otherwise, then.
    """
    unheard = [one for one in silences_of(beside, ends_us) if not one.heard]
    spans: list[Span] = []
    since: Beside | None = None
    for one in [*beside, None]:
        if one is not None and not one.kind.startswith("lease."):
            continue
        if since is not None:
            stops = ends_us if one is None else one.at_us
            silent = next((each for each in unheard if since.at_us <= each.starts_us < stops), None)
            crash = None
            if silent is not None:
                crash = min(silent.starts_us + _number(since, "ttl_s") * _S, stops)
            elif one is not None and one.kind != "lease.released":
                crash = stops
            spans.append(Span(since.at_us, stops, _epoch(since), crash))
        since = one if one is not None and one.kind == "lease.acquired" else None
    return spans


def silences_of(beside: Sequence[Beside], ends_us: int) -> list[Silence]:
    """When holders were silent: from their last beat until they were heard, or the lease was another's or over."""
    found: list[Silence] = []
    since: int | None = None
    for one in [*beside, Beside(ends_us, _END, 0, "{}", None)]:
        if since is not None and (one.kind in _SILENCE_ENDS):
            found.append(Silence(since, max(one.at_us, since), one.kind == "session.heard"))
            since = None
        if one.kind == "session.silent":  # told when the lease had run out, but it began with the last beat
            since = min(_number(one, "since_us") or one.at_us, one.at_us)
    return found


_END: Final = "the end of the window"
_SILENCE_ENDS: Final = ("session.heard", "lease.acquired", "lease.released", "lease.lost", "session.silent", _END)


def _number(one: Beside, name: str) -> int:
    found = orjson.loads(one.facts or "{}").get(name)
    return found if isinstance(found, int) else 0


def _epoch(one: Beside) -> str:
    return str(one.epoch) if one.epoch is not None else "?"
