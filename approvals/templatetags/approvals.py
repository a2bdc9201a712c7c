"""Template tags of the approval pages."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from uuid import UUID

from django import template
from django.urls import reverse
from django.utils.safestring import SafeString

from approvals import labels
from approvals.confirmation import FOR_THIS
from approvals.diff.unified import DiffRow
from approvals.inbox.inbox_rows import InboxRow as Entry
from approvals.models import Gate, Vote
from approvals.policies.engine import is_production_name
from approvals.review.card import MAX_GLANCE_LINES, SOURCE_AGENT, SOURCE_UNKNOWN, CardLine
from approvals.review.context import ChainStep, VoteView
from db.clock import now_us
from ledger.models import Effect
from web import untrusted_text
from web.templatetags.gatebook import (
    derive_shown_state,
    elapsed,
    grouped,
    mark,
    middle_cut,
    moment,
    state_with,
    untrusted_line,
)
from web.untrusted_text import format_markup

register = template.Library()
SOON_S: Final = 5 * 60
_US: Final = 1_000_000


@register.filter
def gate_state(gate: Gate) -> SafeString:
    """Render the status of a gate: shape, word and colour."""
    word, colour, shape = labels.STATUS_LABELS[gate.status]
    return format_markup('<span class="state {}">{}{}</span>', colour, mark(shape), word)


@register.filter
def gate_shape(gate: Gate) -> SafeString:
    """Render the status of a gate as a shape, with the word as its title."""
    word, colour, shape = labels.STATUS_LABELS[gate.status]
    return format_markup('<span class="state {}" title="{}">{}</span>', colour, word, mark(shape))


@register.filter
@lru_cache(maxsize=16)
def reversibility_label(reversibility: str) -> SafeString:
    """Render a reversibility as a word with its shape; irreversible is stamped."""
    if reversibility == "irreversible":
        return format_markup('<span class="risk is-final">{}Irreversible</span>', mark("final"))
    shape = {"compensable": "undoable", "reversible": "either"}.get(reversibility, "dash")
    word = "changes nothing" if reversibility == "read" else reversibility
    return format_markup('<span class="risk">{}{}</span>', mark(shape), word)


@register.filter
def entry_head(row: Entry, may_rule: bool) -> SafeString:
    """Render the head of a list entry: reversibility, deadline, target, requester.

    Code and not a template: a page has fifty entries, which took 20 % of its time as templates.
    """
    gate = row.gate
    if gate.status == "pending":
        where = environment_label(gate.effect_environment, gate.effect_ref_class)
        top = format_markup(
            '{}{}<span class="push">in {}</span>',
            reversibility_label(gate.reversibility),
            where,
            time_left(gate.decide_by_us),
        )
    else:
        ended = gate.decided_at_us or gate.ended_at_us or gate.decide_by_us
        top = format_markup('{}<span class="push">{}</span>', gate_state(gate), moment(ended))
    if row.groups and may_rule:
        top = format_markup(_TICK, str(gate.id), str(gate)) + top
    what = untrusted_line(gate.tool, 32)
    if row.title_object:
        what = format_markup("{} {}", what, untrusted_line(row.title_object, 48))
    if gate.repository_name:
        what = format_markup("{} of {}", what, untrusted_line(gate.repository_name, 24))
    gist = telling_list(row)
    if not gist and row.gist:
        gist = format_markup(
            '<p class="gist">{}</p>\n', untrusted_line(row.gist, 90, prose=row.prose)
        )
    whom = format_markup(" for {}", gate.whom) if gate.whom else SafeString("")
    by, since = untrusted_line(gate.agent_name, 40), age_text(gate.requested_at_us)
    return format_markup(_ENTRY, top, reverse("gate", args=[gate.id]), what, gist, by, whom, since)


def telling_list(row: Entry) -> SafeString:
    """Render the arguments that tell a row apart, each cut in the middle; nothing without any."""
    if not row.telling:
        return SafeString("")
    pairs = [
        format_markup("<dt>{}</dt><dd>{}</dd>", untrusted_line(label, 24), middle_cut(value))
        for label, value in row.telling
    ]
    return format_markup('<dl class="telling">{}</dl>\n', SafeString("".join(pairs)))


_TICK: Final = '<input type="checkbox" form="batch" name="gate" value="{}" aria-label="Select {}">'
_ENTRY: Final = (
    '<p class="entry-top">{}</p>\n<h3><a href="{}" data-gate>{}</a></h3>\n'
    '{}<p class="by">{}{}, asked {} ago</p>'
)


@register.filter
def reauthentication(row: VoteView) -> SafeString:
    """Describe the step-up of an approval: what was typed, and whether for this vote."""
    vote = row.vote
    code = vote.step_up == "typed_digest"
    if vote.password_at_us is None:
        return SafeString("With code and password" if code else "With password")
    given = password_given(vote.password_at_us, vote.voted_at_us, row.password_for)
    return format_markup("Code typed. {}", given) if code else given


@register.simple_tag
def password_given(given_at_us: int | None, answered_at_us: int, password_for: str) -> SafeString:
    """Describe when a password was given: for this answer, or in the five minutes before.

    Answers from before the record named it count as proved by a password of the last two seconds.
    """
    if given_at_us is None:
        return SafeString("Password given")
    earlier = max(0, answered_at_us - given_at_us)
    at = moment(given_at_us, "time")
    if password_for == FOR_THIS or (not password_for and earlier < 2 * _US):
        return format_markup("Password given for this answer, {}", at)
    return format_markup(
        "Password given {} before, {}, not for this answer; it counts for 5 minutes",
        elapsed(earlier),
        at,
    )


@register.filter
def warning_names(checks: Iterable[str]) -> str:
    """List the checks that warned: lookalike, missing evidence."""
    return ", ".join(dict.fromkeys(check.replace("_", " ") for check in checks))


_VOTE_STATES: Final = {  # answer -> class, shape in the sprite, text
    "approve": ("is-ack", "decided", "approved"),
    "request_changes": ("is-compensated", "compensated", "asked for changes"),
    "deny": ("is-failed", "failed", "denied"),
    "deny_session": ("is-failed", "failed", "denied for this session"),
}


@register.filter
def vote_state(vote: Vote) -> SafeString:
    """Render who gave which answer, with its shape and colour."""
    colour, shape, text = _VOTE_STATES[vote.answer]
    name = vote.user.get_username()
    return format_markup('<span class="state {}">{}{} {}</span>', colour, mark(shape), name, text)


@register.filter
def asked_line(line: CardLine, policy_set: UUID | None) -> SafeString:
    """Render a line of "Why you are asked"; the policy links to its page."""
    if line.label == "Policy" and policy_set is not None:
        return format_markup(
            '<a href="{}">{}</a>:', reverse("policy_set", args=[policy_set]), line.text
        )
    if line.label == "Policy":
        return format_markup("{}:", line.text)
    if line.label == "Needs":
        return format_markup("Needs <b>{}</b>", line.text)
    if line.label == "For":
        return format_markup("For <b>{}</b> {}", line.text, source_label(line))
    return format_markup("{}.", line.text)


@register.simple_tag
@lru_cache(maxsize=256)
def environment_label(environment: str, ref_class: str = "") -> SafeString:
    """Render the environment of an effect.

    Production is stamped, whether the agent or the ref class names it. Any other name is only the
    agent's claim.
    """
    is_production = is_production_name(environment)
    stamp = format_markup(
        '<span class="env is-prod">{}</span>',
        untrusted_line(environment, 20) if is_production else "production",
    )
    if is_production or not environment:
        return stamp if is_production or ref_class == "production" else SafeString("")
    word = format_markup('<span class="quiet">says {}</span>', untrusted_line(environment, 20))
    return stamp + word if ref_class == "production" else word


@register.filter
def time_left(until_us: int) -> SafeString:
    """Render the time left: 03:58, 5 h 20 min, 3 d. Below 1 h the script counts."""
    seconds = max(0, (until_us - now_us()) // _US)
    style = ' class="soon"' if seconds < SOON_S else ""
    return format_markup(
        '<span{} data-left="{}">{}</span>', SafeString(style), str(seconds), format_seconds(seconds)
    )


def format_seconds(seconds: int) -> str:
    """Format seconds: 03:58, 5 h 20 min, 3 d."""
    if seconds < 3600:
        return f"{seconds // 60:02d}:{seconds % 60:02d}"
    return (
        f"{seconds // 3600} h {seconds % 3600 // 60} min"
        if seconds < 48 * 3600
        else f"{seconds // 86400} d"
    )


@register.filter
def age_text(us: int) -> str:
    """Format an age in one unit: 11 min, 3 h, 2 d."""
    return labels.format_age(us, now_us())


@register.filter
def full_text(text: str) -> SafeString:
    """Render all text of an agent as inert markup, hidden characters as tokens."""
    return untrusted_text.render_untrusted(text, None)


@register.filter
def prose_text(text: str) -> SafeString:
    """Render as `full_text`; no-break spaces of typography are plain."""
    return untrusted_text.render_untrusted(text, None, prose=True)


@register.filter
def numbered_text(text: str, prose: bool = False) -> SafeString:
    """Render as `full_text`, with line numbers if the text has more than MAX_GLANCE_LINES lines.

    In `prose` no-break spaces of typography are plain.
    """
    return (
        untrusted_text.render_numbered_lines(text, prose=prose)
        if text.count("\n") > MAX_GLANCE_LINES
        else untrusted_text.render_untrusted(text, None, prose=prose)
    )


@register.filter
def line_count(text: str) -> str:
    """Format a line count: 1 line, 2 426 lines."""
    count = text.rstrip("\n").count("\n") + 1
    return f"{grouped(count)} line{'' if count == 1 else 's'}"


@register.filter
def plain_text(text: str) -> str:
    """Return agent text for an option: no markup, hidden characters as tokens."""
    return untrusted_text.name_hidden_characters(text[:_OPTION_CHARACTERS])


_OPTION_CHARACTERS: Final = 60


@register.filter
def source_label(line: CardLine) -> SafeString:
    """Render the source of a line, in full in its title; none for an unknown value."""
    if line.source == SOURCE_UNKNOWN:
        return SafeString("")
    return format_markup(
        '<small class="source" title="{}">{}</small>',
        line.source,
        "agent, unverified" if line.source == SOURCE_AGENT else line.source,
    )


_SIGN_CELLS: Final = {
    "+": ("add", "added ", "+"),
    "-": ("del", "removed ", "−"),
    "@": ("hunk", "", ""),
    " ": ("", "", ""),
}


@register.filter
def diff_row(row: DiffRow) -> SafeString:
    """Render a diff row. The sign has its own column, so colour is never the only cue."""
    css_class, word, sign = _SIGN_CELLS[row.sign]
    return format_markup(
        '<tr class="{}"><td class="line-number">{}{}</td>'
        '<td class="untrusted" hx-disable hx-ignore dir="ltr">{}</td></tr>',
        css_class,
        format_markup('<span class="visually-hidden">{}</span>', word) if word else "",
        sign,
        untrusted_text.render_untrusted(row.text, None),
    )


@register.filter
def step_state(effect: Effect) -> SafeString:
    """Render the state of an effect as a shape, for the list of neighbouring effects."""
    shown = state_with(derive_shown_state(effect, now_us()), effect.outcome, effect.permission)
    return format_markup("{}", SafeString(f'<span class="is-step">{shown}</span>'))


@register.filter
def step_name(step: ChainStep, current: UUID) -> SafeString:
    """Render a neighbouring effect's tool, linked unless it is the current one."""
    name = untrusted_line(step.effect.tool or "no plan", 30)
    if step.effect.id == current:
        return format_markup("<b>{}, this</b>", name)
    rel = format_markup(' rel="{}"', step.rel) if step.rel else SafeString("")
    return format_markup(
        '<a href="{}"{}>{}</a>', reverse("effect", args=[step.effect.id]), rel, name
    )


@register.filter
def as_moment(us: str) -> SafeString:
    """Render a moment given as microseconds in text."""
    return moment(int(us))
