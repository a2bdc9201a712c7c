"""Template filters of the page that compares two sessions."""

from collections.abc import Callable
from typing import Final

from django import template
from django.utils.safestring import SafeString

from inquiry.comparing import Call, Line
from inquiry.templatetags.inquiry import leave, state_of
from journal.templatetags.gatebook import elapsed
from journal.untrusted import markup

register = template.Library()

_SIGNS: Final = {
    "=": ("", "in both, alike", "="),
    "≠": ("is-unknown", "in both, different", "≠"),
    "-": ("del", "only on the left", "−"),
    "+": ("add", "only on the right", "+"),
}


@register.filter
def sign_of(line: Line) -> SafeString:
    """Return the sign of a line with its hidden text."""
    _, words, sign = _SIGNS[line.sign]
    return markup(
        '<b class="sign" aria-hidden="true">{}</b><span class="away">{}</span>', sign, words
    )


@register.filter
def sign_class(line: Line) -> str:
    """Return the CSS class that tints a line; the sign has the same meaning."""
    return _SIGNS[line.sign][0]


@register.filter
def compared_cell(line: Line, aspect: str) -> SafeString:
    """Return an aspect of a call: once if equal in both sessions, else left and right."""
    tell = _ASPECTS[aspect]
    if line.left is None or line.right is None:
        return tell(line.one)
    if aspect not in line.differs:
        return tell(line.left)
    form = (
        '<span class="unlike">{} <span aria-hidden="true">→</span>'
        '<span class="away">against</span> {}</span>'
    )
    return markup(form, tell(line.left), tell(line.right))


def _attempts(call: Call) -> SafeString:
    return markup("{}", str(call.effect.attempt_count))


def _time(us: int | None) -> SafeString:
    return markup('<span class="quiet">{}</span>', "—") if us is None else markup("{}", elapsed(us))


def _reviewers(call: Call) -> SafeString:
    return markup("{}", ", ".join(call.reviewers)) if call.reviewers else _time(None)


_ASPECTS: Final[dict[str, Callable[[Call], SafeString]]] = {
    "outcome": lambda call: state_of(call.effect),
    "leave": lambda call: leave(call.effect),
    "attempts": _attempts,
    "waiting": lambda call: _time(call.waited_us),
    "reviewers": _reviewers,
    "duration": lambda call: _time(call.took_us),
}
