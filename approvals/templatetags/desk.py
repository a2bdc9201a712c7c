"""Template tags of the approval pages."""

from functools import lru_cache
from typing import Final
from uuid import UUID

from django import template
from django.contrib.auth.models import AbstractBaseUser
from django.urls import reverse
from django.utils.safestring import SafeString

from approvals import words
from approvals.around import Step
from approvals.card import FITS_LINES, SENT, UNKNOWN, Line
from approvals.diffs import Row
from approvals.entries import Row as Entry
from approvals.flags import Again
from approvals.matching import names_production
from approvals.models import Gate, Vote
from journal import untrusted
from journal.clock import now_us
from journal.templatetags.gatebook import (
    elapsed,
    grouped,
    mark,
    moment,
    shown_state,
    state_with,
    untrusted_line,
)
from journal.untrusted import markup
from ledger.models import Effect

register = template.Library()
SOON_S: Final = 5 * 60
_US: Final = 1_000_000


@register.filter
def gate_state(gate: Gate) -> SafeString:
    """Render the status of a gate: shape, word and colour."""
    word, colour, shape = words.STATUSES[gate.status]
    return markup('<span class="state {}">{}{}</span>', colour, mark(shape), word)


@register.filter
def gate_shape(gate: Gate) -> SafeString:
    """Render the status of a gate as a shape, with the word as its title."""
    word, colour, shape = words.STATUSES[gate.status]
    return markup('<span class="state {}" title="{}">{}</span>', colour, word, mark(shape))


@register.filter
@lru_cache(maxsize=16)
def undoing(reversibility: str) -> SafeString:
    """Render a reversibility as a word with its shape; irreversible is stamped."""
    if reversibility == "irreversible":
        return markup('<span class="risk is-final">{}Irreversible</span>', mark("final"))
    shape = {"compensable": "undoable", "reversible": "either"}.get(reversibility, "dash")
    word = "changes nothing" if reversibility == "read" else reversibility
    return markup('<span class="risk">{}{}</span>', mark(shape), word)


@register.filter
def entry(row: Entry, may_rule: bool) -> SafeString:
    """Render the head of a list entry: reversibility, deadline, target, requester.

    Code and not a template: a page has fifty entries, which took 20 % of its time as templates.
    """
    gate = row.gate
    if gate.status == "pending":
        where = place(gate.effect_environment, gate.effect_ref_class)
        top = markup(
            '{}{}<span class="push">in {}</span>',
            undoing(gate.reversibility),
            where,
            left(gate.decide_by_us),
        )
    else:
        ended = gate.decided_at_us or gate.ended_at_us or gate.decide_by_us
        top = markup('{}<span class="push">{}</span>', gate_state(gate), moment(ended))
    if row.groups and may_rule:
        top = markup(_TICK, str(gate.id), str(gate)) + top
    what = untrusted_line(gate.tool, 32)
    if gate.effect_ref:
        what = markup("{} {}", what, untrusted_line(gate.effect_ref, 24))
    if gate.repository_name:
        what = markup("{} of {}", what, untrusted_line(gate.repository_name, 24))
    gist = (
        markup('<p class="gist">{}</p>\n', untrusted_line(row.gist, 90))
        if row.gist
        else SafeString("")
    )
    whom = markup(" for {}", gate.whom) if gate.whom else SafeString("")
    by, since = untrusted_line(gate.agent_name, 40), ago(gate.requested_at_us)
    return markup(_ENTRY, top, reverse("gate", args=[gate.id]), what, gist, by, whom, since)


_TICK: Final = '<input type="checkbox" form="batch" name="gate" value="{}" aria-label="Select {}">'
_ENTRY: Final = (
    '<p class="entry-top">{}</p>\n<h3><a href="{}" data-gate>{}</a></h3>\n'
    '{}<p class="by">{}{}, asked {} ago</p>'
)


@register.filter
def reauthentication(vote: Vote) -> SafeString:
    """Describe the step-up of an approval and its time.

    A password counts for 5 minutes, so it may have been given for an earlier vote.
    """
    code = vote.step_up == "typed_digest"
    if vote.password_at_us is None:
        return SafeString("With code and password" if code else "With password")
    earlier = vote.voted_at_us - vote.password_at_us
    when = f"{elapsed(earlier)} before" if earlier >= 2 * _US else "with the answer"
    given = markup("Password given {}, {}", moment(vote.password_at_us, "time"), when)
    return markup("Code typed. {}", given) if code else given


_VOTE_STATES: Final = {  # answer -> class, shape in the sprite, text
    "approve": ("is-ack", "decided", "approved"),
    "return": ("is-compensated", "compensated", "asked for changes"),
    "deny": ("is-failed", "failed", "denied"),
    "deny_final": ("is-failed", "failed", "denied for this session"),
}


@register.filter
def vote_state(vote: Vote) -> SafeString:
    """Render who gave which answer, with its shape and colour."""
    colour, shape, text = _VOTE_STATES[vote.answer]
    name = vote.user.get_username()
    return markup('<span class="state {}">{}{} {}</span>', colour, mark(shape), name, text)


@register.filter
def asked_line(line: Line, policy_set: UUID | None) -> SafeString:
    """Render a line of "Why you are asked"; the policy links to its page."""
    if line.label == "Policy" and policy_set is not None:
        return markup('<a href="{}">{}</a>:', reverse("policy_set", args=[policy_set]), line.text)
    if line.label == "Policy":
        return markup("{}:", line.text)
    if line.label == "Needs":
        return markup("Needs <b>{}</b>", line.text)
    if line.label == "For":
        return markup("For <b>{}</b> {}", line.text, source(line))
    return markup("{}.", line.text)


@register.simple_tag
@lru_cache(maxsize=256)
def place(environment: str, ref_class: str = "") -> SafeString:
    """Render the environment of an effect.

    Production is stamped, whether the agent or the ref class names it. Any other name is only the
    agent's claim.
    """
    is_production = names_production(environment)
    stamp = markup(
        '<span class="env is-prod">{}</span>',
        untrusted_line(environment, 20) if is_production else "production",
    )
    if is_production or not environment:
        return stamp if is_production or ref_class == "production" else SafeString("")
    word = markup('<span class="quiet says">says {}</span>', untrusted_line(environment, 20))
    return stamp + word if ref_class == "production" else word


@register.filter
def left(until_us: int) -> SafeString:
    """Render the time left: 03:58, 5 h 20 min, 3 d.

    The script counts down below one hour.
    """
    seconds = max(0, (until_us - now_us()) // _US)
    look = ' class="soon"' if seconds < SOON_S else ""
    return markup('<span{} data-left="{}">{}</span>', SafeString(look), str(seconds), span(seconds))


def span(seconds: int) -> str:
    """Format seconds: 03:58, 5 h 20 min, 3 d."""
    if seconds < 3600:
        return f"{seconds // 60:02d}:{seconds % 60:02d}"
    return (
        f"{seconds // 3600} h {seconds % 3600 // 60} min"
        if seconds < 48 * 3600
        else f"{seconds // 86400} d"
    )


@register.filter
def ago(us: int) -> str:
    """Format an age in one unit: 11 min, 3 h, 2 d."""
    return words.age(us, now_us())


@register.filter
def refusal_text(again: Again, reader: AbstractBaseUser) -> str:
    """Describe the last refusal of the same request: denied by rita 2 d ago."""
    voter = again.vote.user
    who = "you" if voter.pk == reader.pk else voter.get_username()
    return f"{again.word} by {who} {ago(again.vote.voted_at_us)} ago"


@register.filter
def whole(text: str) -> SafeString:
    """Render the full text of an agent as inert markup.

    Hidden characters become tokens.
    """
    return untrusted.render(text, None)


@register.filter
def numbered(text: str) -> SafeString:
    """Render as `whole`, with line numbers if the text has more than FITS_LINES lines."""
    return untrusted.render_lines(text) if text.count("\n") > FITS_LINES else whole(text)


@register.filter
def line_count(text: str) -> str:
    """Format a line count: 1 line, 2 426 lines."""
    count = text.rstrip("\n").count("\n") + 1
    return f"{grouped(count)} line{'' if count == 1 else 's'}"


@register.filter
def plain_text(text: str) -> str:
    """Return an agent's text without markup, for an option.

    Hidden characters become tokens.
    """
    return "".join(
        piece.shown or piece.raw
        for piece in untrusted.pieces(text[:_OPTION_CHARACTERS], one_line=True)
    )


_OPTION_CHARACTERS: Final = 60


@register.filter
def source(line: Line) -> SafeString:
    """Render the source of a line, in full in its title.

    An unknown value needs no source.
    """
    if line.source == UNKNOWN:
        return SafeString("")
    return markup(
        '<small class="source" title="{}">{}</small>',
        line.source,
        "agent, unverified" if line.source == SENT else line.source,
    )


_SIGN_CELLS: Final = {
    "+": ("add", "added ", "+"),
    "-": ("del", "removed ", "−"),
    "@": ("hunk", "", ""),
    " ": ("", "", ""),
}


@register.filter
def diff_row(row: Row) -> SafeString:
    """Render a diff row. The sign has its own column, so colour is never the only cue."""
    css_class, word, sign = _SIGN_CELLS[row.sign]
    return markup(
        '<tr class="{}"><td class="no">{}{}</td>'
        '<td class="untrusted" hx-disable hx-ignore dir="ltr">{}</td></tr>',
        css_class,
        markup('<span class="away">{}</span>', word) if word else "",
        sign,
        untrusted.render(row.text, None),
    )


@register.filter
def step_of(effect: Effect) -> SafeString:
    """Render the state of an effect as a shape, for the list of neighbouring effects."""
    shown = state_with(shown_state(effect, now_us()), effect.outcome, effect.leave)
    return markup("{}", SafeString(f'<span class="is-step">{shown}</span>'))


@register.filter
def step_name(step: Step, current: UUID) -> SafeString:
    """Render a neighbouring effect's tool, linked unless it is the current one."""
    name = untrusted_line(step.effect.tool or "no plan", 30)
    if step.effect.id == current:
        return markup("<b>{}, this</b>", name)
    rel = markup(' rel="{}"', step.rel) if step.rel else SafeString("")
    return markup('<a href="{}"{}>{}</a>', reverse("effect", args=[step.effect.id]), rel, name)


@register.filter
def as_moment(us: str) -> SafeString:
    """Render a moment given as microseconds in text."""
    return moment(int(us))
