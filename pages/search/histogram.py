"""Draw the histogram of a query's matches as SVG; each bar is a link that narrows the query."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from django.utils.safestring import SafeString

from approvals import labels
from display import display_state, urls_of_rows
from display.state_textures import STATE_TEXTURES
from investigation.query.execute import CompiledQuery
from investigation.query.facets import Bar, Overview
from web.templatetags.gatebook import STATES, STATUSES
from web.untrusted_text import format_markup

HEIGHT: Final = 72  # pixels; static/gatebook.css has it too
_SPACE: Final = 0.1  # per cent at both sides of a bar
MIN_SLOTS: Final = 12  # Minimum number of slots for bars.
_DAY_US: Final = 86_400_000_000
_PLAIN: Final = ("is-plain", "dash")

# By entity and value of the stacking field: (label, class, shape).
BAR_STYLES: Final[Mapping[str, Mapping[str, tuple[str, str, str]]]] = {
    "effect": {key: (word, *STATES[word]) for key, word in display_state.STATES.items()},
    "session": {
        **{word: (word, *look) for word, look in STATUSES.items()},
        "no_end_told": (display_state.END_NOT_REPORTED, *STATUSES[display_state.END_NOT_REPORTED]),
    },
    "gate": labels.STATUS_LABELS,
}


_RECT: Final = '<rect class="{}" x="{}%" y="{}" width="{}%" height="{}"/>'
_TEXTURE: Final = (
    '<rect class="texture" fill="url(#texture-{})" x="{}%" y="{}" width="{}%" height="{}"/>'
)


class HistogramHead(NamedTuple):
    """A state of the bars: how tables and the legend name it, and how it is drawn."""

    word: str
    style: str
    shape: str
    texture: str


@dataclass(frozen=True, slots=True)
class HistogramRow:
    """A bar as a row of a table."""

    from_us: int
    to_us: int
    counts: list[tuple[str, int]]  # (label, count) pairs.
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class HistogramDrawing:
    """The bars as inner SVG markup, and as table rows with the columns `heads`.

    `form` is "day" if every bar covers complete days.
    """

    inner: SafeString
    heads: list[HistogramHead]
    rows: list[HistogramRow]
    from_us: int
    to_us: int
    form: str
    step: str
    step_us: int
    slots: int  # Slots of equal width from `from_us` to `to_us`, one for each bar or empty.


def draw_histogram(
    compiled: CompiledQuery, overview: Overview, kept: Mapping[str, str]
) -> HistogramDrawing | None:
    """Draw the histogram; return None if there are no bars. Links keep the parameters `kept`."""
    bars, styles = overview.bars, BAR_STYLES.get(compiled.entity.name, {})
    textures = STATE_TEXTURES.get(compiled.entity.name, {})
    if not bars:
        return None
    heads = [key for key in styles if any(key == part for bar in bars for part, _ in bar.parts)]
    slot_count = max(len(bars), MIN_SLOTS)
    # Centre a small number of bars, so that they are not too wide.
    first_slot = (slot_count - len(bars)) // 2
    wide, high = 100 / slot_count, overview.highest
    plural = compiled.entity.plural
    inner = []
    for number, bar in enumerate(bars, first_slot):
        if not bar.count:
            continue
        rects, top = [], HEIGHT - 1.0
        # Problems are drawn at the foot of the bar.
        stacked = sorted(
            list(bar.parts) if heads else [("", bar.count)],
            key=lambda part: _severity_rank(styles.get(part[0], ("", "", ""))[1]),
        )
        for key, count in stacked:
            tall = max(count / high * (HEIGHT - 4), 0.75)
            top -= tall
            look = styles.get(key, ("", *_PLAIN))[1]
            place = (
                f"{number * wide + _SPACE:.2f}",
                f"{top:.1f}",
                f"{max(wide - 2 * _SPACE, _SPACE):.2f}",
                f"{tall:.1f}",
            )
            rects.append(format_markup(_RECT, f"fill {look}", *place))
            if texture := textures.get(key, ""):
                rects.append(format_markup(_TEXTURE, texture, *place))
        label = (
            f"{_format_utc(bar.from_us)} to {_format_utc(bar.to_us)} UTC: {bar.count:,} {plural}"
        )
        details = ", ".join(
            f"{count:,} {styles[key][0]}" for key, count in bar.parts if key in styles
        )
        label += f", {details}" if details else ""
        url = urls_of_rows.build_search_url(bar.text, **kept)
        drawn = SafeString("".join(rects))
        # The table below shows the same links, so the bars are skipped by the keyboard.
        inner.append(
            format_markup('<a href="{}" tabindex="-1"><title>{}</title>{}</a>', url, label, drawn)
        )
    rows = [_build_row(bar, heads, styles) for bar in bars if bar.count]
    step_us = bars[0].to_us - bars[0].from_us
    from_us = bars[0].from_us - first_slot * step_us
    to_us = from_us + slot_count * step_us
    form = "day" if step_us % _DAY_US == 0 else ""
    head_labels = [HistogramHead(*styles[key], textures.get(key, "")) for key in heads]
    return HistogramDrawing(
        SafeString("".join(inner)),
        head_labels,
        rows,
        from_us,
        to_us,
        form,
        _format_length(step_us),
        step_us,
        slot_count,
    )


def _severity_rank(look: str) -> int:
    order = (
        "is-unknown",
        "is-failed",
        "is-awaiting",
        "is-dispatched",
        "is-planned",
        "is-compensated",
    )
    return order.index(look) if look in order else len(order)


def _build_row(
    bar: Bar, heads: list[str], styles: Mapping[str, tuple[str, str, str]]
) -> HistogramRow:
    counts = dict(bar.parts)
    return HistogramRow(
        bar.from_us,
        bar.to_us,
        [(styles[key][0], counts.get(key, 0)) for key in heads],
        bar.count,
        bar.text,
    )


def _format_utc(us: int) -> str:
    at = datetime.fromtimestamp(us / 1_000_000, UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S" if at.second else "%Y-%m-%d %H:%M")


def _format_length(us: int) -> str:
    seconds = us // 1_000_000
    for size, word in (
        (604_800, "week"),
        (86_400, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ):
        if seconds % size == 0 and seconds >= size:
            number = seconds // size
            return f"{number} {word}{'s' if number > 1 else ''}"
    return f"{seconds} seconds"
