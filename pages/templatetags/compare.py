"""Template filters of the page that compares two sessions."""

from collections.abc import Callable
from typing import Final

from django import template
from django.utils.safestring import SafeString

from pages.compare.diff import Call, ComparisonLine
from pages.templatetags.pages import permission, shown_effect_state
from web.templatetags.gatebook import elapsed
from web.untrusted_text import format_markup

register = template.Library()

_SIGNS: Final = {
    "=": ("", "in both, alike", "="),
    "≠": ("is-unknown", "in both, different", "≠"),
    "-": ("del", "only on the left", "−"),
    "+": ("add", "only on the right", "+"),
}


@register.filter
def line_sign(line: ComparisonLine) -> SafeString:
    """Return the sign of a line with its hidden text."""
    _, words, sign = _SIGNS[line.sign]
    return format_markup(
        '<b class="sign" aria-hidden="true">{}</b><span class="visually-hidden">{}</span>',
        sign,
        words,
    )


@register.filter
def line_sign_class(line: ComparisonLine) -> str:
    """Return the CSS class that tints a line; the sign has the same meaning."""
    return _SIGNS[line.sign][0]


@register.filter
def comparison_cell(line: ComparisonLine, aspect: str) -> SafeString:
    """Return an aspect of a call: once if equal in both sessions, else left and right."""
    tell = _ASPECTS[aspect]
    if line.left is None or line.right is None:
        return tell(line.call)
    if aspect not in line.differs:
        return tell(line.left)
    form = (
        '<span class="changed-value">{} <span aria-hidden="true">→</span>'
        '<span class="visually-hidden">against</span> {}</span>'
    )
    return format_markup(form, tell(line.left), tell(line.right))


def _attempts_cell(call: Call) -> SafeString:
    return format_markup("{}", str(call.effect.attempt_count))


def _duration_cell(us: int | None) -> SafeString:
    return (
        format_markup('<span class="quiet">{}</span>', "—")
        if us is None
        else format_markup("{}", elapsed(us))
    )


def _reviewers_cell(call: Call) -> SafeString:
    return (
        format_markup("{}", ", ".join(call.reviewers)) if call.reviewers else _duration_cell(None)
    )


_ASPECTS: Final[dict[str, Callable[[Call], SafeString]]] = {
    "outcome": lambda call: shown_effect_state(call.effect),
    "permission": lambda call: permission(call.effect),
    "attempts": _attempts_cell,
    "waiting": lambda call: _duration_cell(call.waited_us),
    "reviewers": _reviewers_cell,
    "duration": lambda call: _duration_cell(call.took_us),
}
