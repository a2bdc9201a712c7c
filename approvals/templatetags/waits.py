"""Draw how long requests waited: a bar for each range of times, median and p95 marked."""

from typing import Final
from urllib.parse import quote

from django import template
from django.utils.safestring import SafeString

from approvals.waiting_times import WaitDistribution, find_bar
from web.templatetags.gatebook import elapsed
from web.untrusted_text import format_markup

register = template.Library()
_BASE: Final = 70  # y of the axis, in pixels
_TALL: Final = 42
_LETTER: Final = 6.2  # approximate width of a letter, pixels
_LEAST_WIDTH: Final = 290  # of the drawing, pixels
_BAR: Final = (
    '<a href="/search/?q={}" tabindex="-1"><title>{}</title>'
    '<rect class="touch" x="{}%" y="14" width="{}%" height="58"/>'
    '<rect class="fill is-accent" x="{}%" y="{}" width="{}%" height="{}"/></a>'
)
_LINE: Final = '<line class="limit" x1="{0}%" x2="{0}%" y1="{1}" y2="70"/>'
_WORDS: Final = '<text class="plated" x="{}%" y="{}" dx="{}" text-anchor="{}">{}</text>'


@register.simple_tag
def draw_waits(waits: WaitDistribution) -> SafeString:
    """Return the content of an SVG that is 88 pixels high."""
    wide = 100 / len(waits.bars)
    most = max((bar.count for bar in waits.bars), default=0) or 1
    parts = [format_markup('<line class="firm" x1="0" x2="100%" y1="{0}" y2="{0}"/>', str(_BASE))]
    for number, bar in enumerate(waits.bars):
        left = number * wide
        if bar.count:
            tall = max(_TALL * bar.count / most, 2)
            parts.append(
                format_markup(
                    _BAR,
                    quote(bar.query, safe=""),
                    f"{bar.label}: {bar.count:,}",
                    f"{left:.2f}",
                    f"{wide:.2f}",
                    f"{left + 0.6:.2f}",
                    f"{_BASE - tall:.1f}",
                    f"{wide - 1.2:.2f}",
                    f"{tall:.1f}",
                )
            )
        anchor = "start" if number == 0 else "middle"
        parts.append(
            format_markup(
                '<text class="dim{}" x="{}%" y="84" text-anchor="{}">{}</text>',
                " is-second" if number % 2 else "",
                f"{left:.2f}",
                anchor,
                bar.label if number else "0",
            )
        )
    return SafeString("".join([*parts, *_draw_quantiles(waits, wide)]))


def _draw_quantiles(waits: WaitDistribution, wide: float) -> list[SafeString]:
    """Draw median and p95: their lines, then their words, which cover lines behind them.

    Words are left of their line if they fit there: then the line of the p95 crosses no word.
    """
    lines, words = [], []
    for us, name, y in ((waits.p95_us, "p95", 10), (waits.median_us, "median", 24)):
        if us is not None:
            at = (find_bar(us) + 0.5) * wide
            text = f"{name} {elapsed(us)}"
            is_left = at > 100 * (_LETTER * len(text) + 8) / _LEAST_WIDTH
            side, space = ("end", "-4") if is_left else ("start", "4")
            lines.append(format_markup(_LINE, f"{at:.2f}", str(y - 8)))
            words.append(format_markup(_WORDS, f"{at:.2f}", str(y), space, side, text))
    return [*lines, *words]
