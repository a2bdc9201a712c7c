"""Template filters of the stuck pages: rule titles, and term values that may be times."""

from django import template
from django.utils.safestring import SafeString

from display.effect_headline import Moment, Part
from monitoring.stuck.board import StuckRow
from monitoring.stuck.rule_names import RULES
from web.templatetags.gatebook import elapsed, moment
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


@register.filter
def case_age(row: StuckRow, now: int) -> str:
    """Return how long a case lasts at `now`."""
    return elapsed(row.reason.measure_age(now))
