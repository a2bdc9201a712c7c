"""Heads of lanes beside the timeline drawing, and the shapes that it draws."""

from typing import Any, Final
from urllib.parse import urlencode

from django import template
from django.template.context import Context
from django.utils.safestring import SafeString

from pages.templatetags.pages import page_url
from pages.timeline import svg
from pages.timeline.svg import LaneHead
from web.untrusted_text import format_markup

register = template.Library()
_ROW: Final = '<li class="rows-{}{}">{}{}{}</li>'


@register.inclusion_tag("pages/timeline/_lane_symbols.html")
def lane_symbols() -> dict[str, Any]:
    """Return the context of the shapes and patterns that a drawing uses."""
    return {"shapes": svg.MARK_SHAPES}


@register.simple_tag(takes_context=True)
def lane_head(context: Context, head: LaneHead) -> SafeString:
    """Return the name of a lane, its worker, and a link to all of its effects.

    The number is a link where the window holds the whole session, so that both are equal.
    """
    name = (
        format_markup("<b{}>{}</b>", _title(head.whole_name, head.name), head.name)
        if head.name
        else SafeString("")
    )
    worker = (
        format_markup("<small{}>{}</small>", _title(head.whole_worker, head.worker), head.worker)
        if head.worker
        else SafeString("")
    )
    sub = " is-sub" if head.is_sub else ""
    count = SafeString("") if head.is_sub or not head.count else _count(context, head)
    return format_markup(_ROW, str(head.rows), sub, name, count, worker)


def _title(whole: str, shown: str) -> SafeString:
    return format_markup(' title="{}"', whole) if whole not in ("", shown) else SafeString("")


def _count(context: Context, head: LaneHead) -> SafeString:
    noun = "effect" if head.count == 1 else "effects"
    words = SafeString(f'{head.count}<span class="visually-hidden"> {noun}</span>')
    lanes = context["lanes"]
    session = context.get("agent_session")
    if session is None or not context.get("is_whole") or lanes.upto is not None:
        return format_markup("<span>{}</span>", words)
    if lanes.by == "tool" and head.key:
        query = {"tool": head.key}
    elif lanes.by == "task" and head.key is not None:
        query = {"task": lanes.tasks[head.key][0]}
    else:
        return format_markup("<span>{}</span>", words)
    link = f"{page_url(session.id, 'session')}?{urlencode(query)}#timeline"
    return format_markup('<a href="{}">{}</a>', link, words)
