"""What the page of two sessions says of a line: whose it is, and what went another way."""

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
    "=": ("", "of both, alike", "="),
    "≠": ("is-unknown", "of both, went another way", "≠"),
    "-": ("del", "only left", "−"),
    "+": ("add", "only right", "+"),
}


@register.filter
def sign_of(line: Line) -> SafeString:
    """Whose a line is, as a sign with its words."""
    _, words, sign = _SIGNS[line.sign]
    return markup(
        '<b class="sign" aria-hidden="true">{}</b><span class="away">{}</span>', sign, words
    )


@register.filter
def sign_class(line: Line) -> str:
    """The class that tints a line; the sign says the same."""
    return _SIGNS[line.sign][0]


@register.filter
def compared_cell(line: Line, aspect: str) -> SafeString:
    """What an aspect of a call was: once where it was the same in both, else left and right."""
    tell = _ASPECTS[aspect]
    if line.left is None or line.right is None:
        return tell(line.one)
    if aspect not in line.differs:
        return tell(line.left)
    form = '<span class="unlike">{} <span aria-hidden="true">→</span><span class="away">against</span> {}</span>'
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
