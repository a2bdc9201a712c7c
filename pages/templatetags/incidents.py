"""Template filters of incidents: state, and verb of a history entry."""

from typing import Final

from django import template
from django.utils.safestring import SafeString

from web.templatetags.gatebook import mark
from web.untrusted_text import format_markup

register = template.Library()

_STATES: Final = {
    "open": ("is-failed", "warn"),
    "contained": ("is-awaiting", "pause"),
    "closed": ("is-ack", "tick"),
}
_VERBS: Final = {
    "incident.opened": "opened it",
    "incident.noted": "noted",
    "incident.joined": "added",
    "incident.left": "removed",
    "incident.changed": "changed it",
}


@register.filter
def incident_state(word: str) -> SafeString:
    """Render an incident's state with icon and colour."""
    style, shape = _STATES.get(word, ("is-planned", "dash"))
    return format_markup('<span class="state {}">{}{}</span>', style, mark(shape), word)


@register.filter
def incident_verb(kind: str) -> str:
    """Return the verb of a history entry."""
    return _VERBS.get(kind, kind)
