"""What the pages of policies say in one way: outcomes, shares, who activated, how an exemption stands."""

from typing import Final

from django import template
from django.utils.safestring import SafeString

from approvals.models import Activation, Exemption
from journal.clock import now_us
from journal.templatetags.gatebook import mark
from journal.untrusted import markup

register = template.Library()
# outcome of a rule or a judgement -> (word, class, shape in the sprite)
_OUTCOMES: Final[dict[str, tuple[str, str, str]]] = {
    "allow": ("allowed", "is-ack", "tick"),
    "require": ("asks for leave", "is-awaiting", "awaiting"),
    "ask": ("asks for leave", "is-awaiting", "awaiting"),
    "deny": ("denied", "is-failed", "failed"),
    "impossible": ("asks more people than can answer", "is-failed", "stop"),
}


@register.filter
def ruling(outcome: str) -> SafeString:
    """Shape, word and colour for what a rule says."""
    word, colour, shape = _OUTCOMES[outcome]
    return markup('<span class="state {}">{}{}</span>', colour, mark(shape), word)


@register.filter
def share(part: float | None) -> str:
    """A share of 0 to 1 in percent; an em dash for none."""
    return "—" if part is None else f"{part:.0%}"


@register.filter
def author(activation: Activation) -> str:
    """Who put rules in force: a name, or the command."""
    return activation.user.get_username() if activation.user else "a command on the server"


@register.filter
def standing(exemption: Exemption, at_us: int | None = None) -> SafeString:
    """Whether an exemption lasts, now or at that moment: requested, in force, ended, or revoked.

    `present` says how many of its grantors may grant one now, or then.
    """
    over = exemption.ends_at_us <= (now_us() if at_us is None else at_us)
    present = getattr(exemption, "present", exemption.minimum)
    if exemption.revoked_at_us is None and exemption.in_force_at_us is None and not over:
        missing = max(exemption.minimum - present, 1)
        word, colour, shape = f"requested, {missing} more to grant it", "is-awaiting", "awaiting"
    elif exemption.revoked_at_us is None and not over and present < exemption.minimum:
        word, colour, shape = "ended: too few of its grantors may still grant it", "is-failed", "stop"
    elif exemption.revoked_at_us is not None:
        word, colour, shape = "revoked", "is-superseded", "superseded"
    elif over:
        word, colour, shape = "ended", "is-planned", "dash"
    else:
        word, colour, shape = "in force", "is-awaiting", "decided"
    return markup('<span class="state {}">{}{}</span>', colour, mark(shape), word)
