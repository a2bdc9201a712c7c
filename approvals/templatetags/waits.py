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
_TALL: Final = 48
_BAR: Final = (
    '<a href="/search/?q={}" tabindex="-1"><title>{}</title>'
    '<rect class="touch" x="{}%" y="14" width="{}%" height="58"/>'
    '<rect class="fill is-accent" x="{}%" y="{}" width="{}%" height="{}"/></a>'
)
_MARK: Final = (
    '<line class="limit" x1="{0}%" x2="{0}%" y1="{1}" y2="70"/>'
    '<text x="{0}%" y="{2}" text-anchor="{3}">{4}</text>'
)


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
                '<text class="dim" x="{}%" y="84" text-anchor="{}">{}</text>',
                f"{left:.2f}",
                anchor,
                bar.label if number else "0",
            )
        )
    for us, name, y in ((waits.median_us, "median", 10), (waits.p95_us, "p95", 22)):
        if us is not None:
            at = (find_bar(us) + 0.5) * wide
            words = f"{name} {elapsed(us)}"
            side = "end" if at > 60 else "start"
            parts.append(format_markup(_MARK, f"{at:.2f}", str(y + 2), str(y), side, words))
    return SafeString("".join(parts))
