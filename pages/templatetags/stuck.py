"""Template filters of the stuck pages: rule titles, and term values that may be times."""

from django import template
from django.utils.safestring import SafeString

from display.effect_headline import Moment, Part
from monitoring.stuck.rules import RULES
from web.templatetags.gatebook import moment
from web.untrusted_text import format_markup

register = template.Library()


@register.filter
def rule_title(rule: str) -> str:
    """Return the title of a rule."""
    return RULES.get(rule, "")


@register.filter
def part(value: Part) -> SafeString:
    """Render a term's value: a time in the reader's clock, or text."""
    return moment(value.us) if isinstance(value, Moment) else format_markup("{}", value)
