"""Template tags of small pictures: shares as bars and percentages, links to searches.

Geometry is in attributes, colour in classes: the content security policy allows no inline style.
"""

from typing import Final
from urllib.parse import quote

from django import template
from django.utils.safestring import SafeString

from web.untrusted_text import format_markup

register = template.Library()

_BAR: Final = (
    '<svg class="share{}" aria-hidden="true">'
    '<rect class="track" width="100%" y="3.5" height="2"/>'
    '<rect class="fill {}" width="{}%" height="9"/></svg>'
)


@register.simple_tag
def share_bar(part: float, whole: float, look: str = "is-accent", *, wide: bool = False) -> str:
    """`{% share_bar 9 118 "is-failed" %}`: a bar as long as the share of `whole`."""
    percent = min(100.0, 100 * part / whole) if whole else 0.0
    return format_markup(_BAR, " is-wide" if wide else "", look, f"{percent:.1f}")


@register.simple_tag
def percent(part: float | None, whole: float | None) -> str:
    """`{% percent 9 118 %}`: 7.6 %, without decimals from 20 on, or a dash without data."""
    return "—" if not whole or part is None else format_percent(part / whole)


def format_percent(share: float) -> str:
    """Format a share from 0 to 1: 0.5 %, 82 %; only an exact 0 or 1 is shown as 0 or 100 %."""
    value = 100 * share
    if value in (0, 100):
        return f"{value:.0f} %"
    text = f"{value:.0f}" if 20 <= value <= 99 else f"{value:.1f}"
    if text in ("0.0", "100.0"):
        return "< 0.1 %" if value < 1 else "> 99.9 %"
    return f"{text} %"


@register.filter
def search_link(query: str) -> SafeString:
    """`{{ query|search_link }}`: the address of a search, for an attribute."""
    return format_markup("/search/?q={}", quote(query, safe=""))
