"""Render the entries of the inbox list.

Code and not templates: a page has fifty entries, which took a fifth of its time as templates.
"""

from typing import Final

from django import template
from django.template import Context
from django.urls import reverse
from django.utils.safestring import SafeString

from approvals.inbox.inbox_rows import InboxRow
from approvals.templatetags.approvals import age_text, check_flags, entry_foot, entry_head
from web.templatetags.gatebook import mark, render_state
from web.untrusted_text import format_markup

register = template.Library()

_NOTHING: Final = SafeString("")
_ITEM: Final = '<li class="entry{}{}"{}>\n{}\n{}{}{}'
_WARNED: Final = '<span class="flag">{}{}</span>'
_MILD: Final = '<span class="flag is-mild" title="{}">{}{}</span>'
_BEFORE: Final = (
    '<a class="flag" href="{}">{}resubmitted\nwith {}: {} {} ago</a>'  # its words are ours
)
_FIRST_USES: Final = {  # where the tool is used first -> title, words
    "project": ("The journal has no earlier effect of this tool", "new tool"),
    "agent": (
        "This agent never requested approval for this tool before",
        "agent’s first request for this tool",
    ),
}


@register.simple_tag(takes_context=True)
def inbox_entry(context: Context, row: InboxRow, is_like: bool = False) -> SafeString:
    """`{% inbox_entry row %}`: the list item of a request, without its end tag.

    `is_like`: it is folded under the request that it is like.
    """
    opened = context.get("gate")
    kind = " is-like" if is_like else ""
    if not is_like and row.gate.reversibility == "irreversible":
        kind = " is-final-entry"
    return format_markup(
        _ITEM,
        kind,
        " is-warned" if row.is_warned else "",
        _CURRENT if opened is not None and opened.id == row.gate.id else _NOTHING,
        entry_head(row, bool(context.get("may_rule"))),
        _render_end(row),
        _render_flags(row),
        entry_foot(row),
    )


_CURRENT: Final = SafeString(' aria-current="true"')


def _render_end(row: InboxRow) -> SafeString:
    """Render who decided an ended request, and what became of its effect."""
    if not row.has_end:
        return _NOTHING
    deciders = format_markup("By <b>{}</b>.", row.deciders) if row.deciders else _NOTHING
    became = (
        render_state(row.became, row.gate.effect_outcome, row.gate.effect_permission)
        if row.became
        else row.afterwards
    )
    return format_markup('<p class="by">{}\n{}\n</p>\n', deciders, became)


def _render_flags(row: InboxRow) -> SafeString:
    """Render the warnings of a request, and how many approvals it has."""
    if not row.is_flagged:
        return _NOTHING
    flags = [check_flags(row)]
    if row.hidden:
        flags.append(_warn(f"{row.hidden} hidden character{'' if row.hidden == 1 else 's'}"))
    if row.blanks:
        flags.append(_warn(f"{row.blanks} consecutive blanks"))
    if row.long:
        flags.append(_warn("long"))
    flags += map(_warn, row.takes)
    if row.before is not None:
        before = row.before
        page, age = reverse("gate", args=[before.gate]), age_text(before.ended_at_us)
        flags.append(format_markup(_BEFORE, page, mark("warn"), before.what, before.word, age))
    if row.reused:
        flags.append(_warn("key sent with other content"))
    if row.first:
        title, words = _FIRST_USES[row.first]
        flags.append(format_markup(_MILD, title, mark("first"), words))
    if row.outside is not None:
        hours, words = str(row.outside.hours), f"outside hours, {row.outside.when}"
        flags.append(format_markup(_MILD, hours, mark("hours"), words))
    if row.gate.assignee:
        flags.append(format_markup("<span>assigned to {}</span>", row.gate.assignee))
    if row.votes or row.gate.minimum > 1:
        count = f"{row.votes} of {row.gate.minimum} approvals"
        flags.append(format_markup("<span>{}</span>", count))
    return format_markup('<p class="flags">\n{}\n</p>\n', SafeString("\n".join(flags)))


def _warn(words: str) -> SafeString:
    return format_markup(_WARNED, mark("warn"), words)
