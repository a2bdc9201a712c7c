"""Template tags of the policy pages."""

from typing import Final

from django import template
from django.utils.safestring import SafeString

from approvals.models import Activation, Exemption
from db.clock import now_us
from web.templatetags.gatebook import mark
from web.untrusted_text import format_markup

register = template.Library()
# outcome of a rule or of a policy evaluation -> (word, class, shape in the sprite)
_OUTCOMES: Final[dict[str, tuple[str, str, str]]] = {
    "allow": ("allowed", "is-ack", "tick"),
    "require": ("requires approval", "is-awaiting", "awaiting"),
    "ask": ("requires approval", "is-awaiting", "awaiting"),
    "deny": ("denied", "is-failed", "failed"),
    "impossible": ("requires more approvers than are eligible", "is-failed", "stop"),
}


@register.filter
def outcome_state(outcome: str) -> SafeString:
    """Render the outcome of a rule: shape, word and colour."""
    word, colour, shape = _OUTCOMES[outcome]
    return format_markup('<span class="state {}">{}{}</span>', colour, mark(shape), word)


@register.filter
def percent(part: float | None) -> str:
    """Format a share of 0 to 1 in percent; an em dash for None."""
    return "—" if part is None else f"{part:.0%}"


@register.filter
def activation_author(activation: Activation) -> str:
    """Return who put rules in force: a user name, or the command."""
    return activation.user.get_username() if activation.user else "a command on the server"


@register.filter
def exemption_state(exemption: Exemption, at_us: int | None = None) -> SafeString:
    """Render the state of an exemption: requested, in force, ended or revoked.

    `exemption.present` is the number of its grantors who may still grant one at that moment.
    """
    over = exemption.ends_at_us <= (now_us() if at_us is None else at_us)
    present = getattr(exemption, "present", exemption.minimum)
    if exemption.revoked_at_us is None and exemption.in_force_at_us is None and not over:
        missing = max(exemption.minimum - present, 1)
        word, colour, shape = f"requested, {missing} more must grant it", "is-awaiting", "awaiting"
    elif exemption.revoked_at_us is None and not over and present < exemption.minimum:
        word, colour, shape = (
            "ended: too few of its grantors are still allowed to grant it",
            "is-failed",
            "stop",
        )
    elif exemption.revoked_at_us is not None:
        word, colour, shape = "revoked", "is-superseded", "superseded"
    elif over:
        word, colour, shape = "ended", "is-planned", "dash"
    else:
        word, colour, shape = "in force", "is-awaiting", "decided"
    return format_markup('<span class="state {}">{}{}</span>', colour, mark(shape), word)
