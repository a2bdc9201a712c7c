"""How the matches of a query lie in time, as bars that the server draws: each is a link that narrows the query."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.utils.safestring import SafeString

from approvals import words
from inquiry import links, shown
from inquiry.query.asking import Asked
from inquiry.query.facets import Bar, Overview
from journal.templatetags.gatebook import STATES, STATUSES
from journal.untrusted import markup

WIDTH: Final = 960
HEIGHT: Final = 72
FEWEST: Final = 12  # places for bars
_DAY_US: Final = 86_400_000_000
_PLAIN: Final = ("is-plain", "dash")

# entity -> value of the field that its bars are split by -> (word, class, shape)
LOOKS: Final[Mapping[str, Mapping[str, tuple[str, str, str]]]] = {
    "effect": {key: (word, *STATES[word]) for key, word in shown.STATES.items()},
    "session": {
        **{word: (word, *look) for word, look in STATUSES.items()},
        "no_end_told": (shown.NO_END, *STATUSES[shown.NO_END]),
    },
    "gate": words.STATUSES,
}


@dataclass(frozen=True, slots=True)
class Row:
    """A bar as a row of a table."""

    from_us: int
    to_us: int
    counts: list[tuple[str, int]]  # (word, how many)
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """The bars as markup of an SVG, and the same as rows below `heads`; days only, where every bar is whole days."""

    inner: SafeString
    heads: list[tuple[str, str, str]]
    rows: list[Row]
    from_us: int
    to_us: int
    form: str
    step: str


def draw(asked: Asked, overview: Overview, with_facets: bool) -> Drawing | None:
    """Draw what was counted; None of nothing."""
    bars, looks = overview.bars, LOOKS.get(asked.entity.name, {})
    if not bars:
        return None
    heads = [key for key in looks if any(key == part for bar in bars for part, _ in bar.parts)]
    slots = max(len(bars), FEWEST)
    before = (slots - len(bars)) // 2  # of few bars none is as wide as the page
    wide, high = WIDTH / slots, overview.highest
    plural = asked.entity.plural
    inner = []
    for number, bar in enumerate(bars, before):
        if not bar.count:
            continue
        rects, top = [], HEIGHT - 1.0
        # What needs a look stands at the foot of the bar, what went well on top of it.
        stacked = sorted(_stacked(bar, heads), key=lambda part: _calm(looks.get(part[0], ("", "", ""))[1]))
        for key, count in stacked:
            tall = max(count / high * (HEIGHT - 4), 0.75)
            top -= tall
            look = looks.get(key, ("", *_PLAIN))[1]
            rect = '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>'
            rects.append(
                markup(rect, look, f"{number * wide + 1:.1f}", f"{top:.1f}", f"{max(wide - 2, 1):.1f}", f"{tall:.1f}")
            )
        label = f"{_utc(bar.from_us)} to {_utc(bar.to_us)} UTC: {bar.count:,} {plural}"
        details = ", ".join(f"{count:,} {looks[key][0]}" for key, count in bar.parts if key in looks)
        label += f", {details}" if details else ""
        url = links.search(bar.text, **({"facets": "1"} if with_facets else {}))
        drawn = SafeString("".join(rects))
        # Keys walk the rows of the table under the bars, which say the same: nobody steps through forty-eight of them.
        inner.append(markup('<a href="{}" tabindex="-1"><title>{}</title>{}</a>', url, label, drawn))
    rows = [_row(bar, heads, looks) for bar in bars if bar.count]
    step_us = bars[0].to_us - bars[0].from_us
    from_us = bars[0].from_us - before * step_us
    to_us = from_us + slots * step_us
    form = "day" if step_us % _DAY_US == 0 else ""
    heads_told = [looks[key] for key in heads]
    return Drawing(SafeString("".join(inner)), heads_told, rows, from_us, to_us, form, _length(step_us))


def _stacked(bar: Bar, heads: list[str]) -> list[tuple[str, int]]:
    return list(bar.parts) if heads else [("", bar.count)]


def _calm(look: str) -> int:
    order = ("is-unknown", "is-failed", "is-awaiting", "is-dispatched", "is-planned", "is-compensated")
    return order.index(look) if look in order else len(order)


def _row(bar: Bar, heads: list[str], looks: Mapping[str, tuple[str, str, str]]) -> Row:
    counts = dict(bar.parts)
    return Row(bar.from_us, bar.to_us, [(looks[key][0], counts.get(key, 0)) for key in heads], bar.count, bar.text)


def _utc(us: int) -> str:
    at = datetime.fromtimestamp(us / 1_000_000, UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S" if at.second else "%Y-%m-%d %H:%M")


def _length(us: int) -> str:
    seconds = us // 1_000_000
    for size, word in ((604_800, "week"), (86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds % size == 0 and seconds >= size:
            number = seconds // size
            return f"{number} {word}{'s' if number > 1 else ''}"
    return f"{seconds} seconds"
