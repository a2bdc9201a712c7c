"""What the pages of the desk say in one way: the state of a gate, its deadline, rows of a diff, and the STOP."""

from functools import lru_cache
from typing import Final

from django import template
from django.contrib.auth.models import AbstractBaseUser
from django.urls import reverse
from django.utils.safestring import SafeString

from approvals import words
from approvals.card import FITS_LINES, SENT, UNKNOWN, Line
from approvals.diffs import Row
from approvals.entries import Row as Entry
from approvals.flags import Again
from approvals.matching import names_production
from approvals.models import Gate, Vote
from journal import untrusted
from journal.clock import now_us
from journal.templatetags.gatebook import elapsed, grouped, mark, moment, shown_state, state_with, untrusted_line
from journal.untrusted import markup
from ledger.models import Effect

register = template.Library()
SOON_S: Final = 5 * 60
_US: Final = 1_000_000


@register.filter
def gate_state(gate: Gate) -> SafeString:
    """Shape, word and colour for the status of a gate."""
    word, colour, shape = words.STATUSES[gate.status]
    return markup('<span class="state {}">{}{}</span>', colour, mark(shape), word)


@register.filter
def gate_shape(gate: Gate) -> SafeString:
    """The shape of a gate's status alone; the words stand beside it."""
    word, colour, shape = words.STATUSES[gate.status]
    return markup('<span class="state {}" title="{}">{}</span>', colour, word, mark(shape))


@register.filter
@lru_cache(maxsize=16)
def undoing(reversibility: str) -> SafeString:
    """Whether something can be undone, as a word with its shape; the irreversible is stamped."""
    if reversibility == "irreversible":
        return markup('<span class="risk is-final">{}Irreversible</span>', mark("final"))
    shape = {"compensable": "undoable", "reversible": "either"}.get(reversibility, "dash")
    word = "changes nothing" if reversibility == "read" else reversibility
    return markup('<span class="risk">{}{}</span>', mark(shape), word)


@register.filter
def entry(row: Entry, may_rule: bool) -> SafeString:
    """What every entry of a list says, in lines: how it can be undone, where, until when; what; who asked.

    Not a template: a page has fifty of them, which took a fifth of its time.
    """
    gate = row.gate
    if gate.status == "pending":
        where = place(gate.effect_environment, gate.effect_ref_class)
        top = markup('{}{}<span class="push">in {}</span>', undoing(gate.reversibility), where, left(gate.decide_by_us))
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
    gist = markup('<p class="gist">{}</p>\n', untrusted_line(row.gist, 90)) if row.gist else SafeString("")
    whom = markup(" for {}", gate.whom) if gate.whom else SafeString("")
    by, since = untrusted_line(gate.agent_name, 40), ago(gate.requested_at_us)
    return markup(_ENTRY, top, reverse("gate", args=[gate.id]), what, gist, by, whom, since)


_TICK: Final = '<input type="checkbox" form="batch" name="gate" value="{}" aria-label="Select {}">'
_ENTRY: Final = (
    '<p class="entry-top">{}</p>\n<h3><a href="{}" data-gate>{}</a></h3>\n{}<p class="by">{}{}, asked {} ago</p>'
)


@register.filter
def proved(vote: Vote) -> SafeString:
    """What a yes was proved by, and when: a password counts for five minutes, so it can be of another answer."""
    code = vote.step_up == "typed_digest"
    if vote.password_at_us is None:
        return SafeString("with code and password" if code else "with password")
    earlier = vote.voted_at_us - vote.password_at_us
    when = f"{elapsed(earlier)} before" if earlier >= 2 * _US else "with the answer"
    given = markup("password given {}, {}", moment(vote.password_at_us, "time"), when)
    return markup("with the code typed; {}", given) if code else given


@register.simple_tag
@lru_cache(maxsize=256)
def place(environment: str, ref_class: str = "") -> SafeString:
    """Where something would happen. Production is stamped, whoever says so; any other name is only the agent's word."""
    said = names_production(environment)
    stamp = markup('<span class="env is-prod">{}</span>', untrusted_line(environment, 20) if said else "production")
    if said or not environment:
        return stamp if said or ref_class == "production" else SafeString("")
    word = markup('<span class="quiet says">says {}</span>', untrusted_line(environment, 20))
    return stamp + word if ref_class == "production" else word


@register.filter
def left(until_us: int) -> SafeString:
    """How long until a moment: 03:58, or 52 min, 5 h, 3 d. The script counts on where it is minutes."""
    seconds = max(0, (until_us - now_us()) // _US)
    look = ' class="soon"' if seconds < SOON_S else ""
    return markup('<span{} data-left="{}">{}</span>', SafeString(look), str(seconds), span(seconds))


def span(seconds: int) -> str:
    """Seconds as the clock shows them."""
    if seconds < 3600:
        return f"{seconds // 60:02d}:{seconds % 60:02d}"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min" if seconds < 48 * 3600 else f"{seconds // 86400} d"


@register.filter
def ago(us: int) -> str:
    """An age in one unit: 11 min, 3 h, 2 d."""
    return words.age(us, now_us())


@register.filter
def said_no(again: Again, reader: AbstractBaseUser) -> str:
    """Who refused the same before, and when: denied by rita 2 d ago."""
    voter = again.vote.user
    who = "you" if voter.pk == reader.pk else voter.get_username()
    return f"{again.word} by {who} {ago(again.vote.voted_at_us)} ago"


@register.filter
def whole(text: str) -> SafeString:
    """Agents' text, all of it, inert; hidden characters are tokens."""
    return untrusted.render(text, None)


@register.filter
def numbered(text: str) -> SafeString:
    """As `whole`; what has more lines than a glance takes in, with their numbers."""
    return untrusted.render_lines(text) if text.count("\n") > FITS_LINES else whole(text)


@register.filter
def line_count(text: str) -> str:
    """1 line, 2 426 lines."""
    count = text.rstrip("\n").count("\n") + 1
    return f"{grouped(count)} line{'' if count == 1 else 's'}"


@register.filter
def plainly(text: str) -> str:
    """Agents' text where no markup may stand, hidden characters as tokens."""
    return "".join(piece.shown or piece.raw for piece in untrusted.pieces(text[:_OPTION], one_line=True))


_OPTION: Final = 60


@register.filter
def source(line: Line) -> SafeString:
    """Whose word a line is, short, with the whole in its title. What is unknown says so itself."""
    if line.source == UNKNOWN:
        return SafeString("")
    return markup(
        '<small class="source" title="{}">{}</small>',
        line.source,
        "agent, unverified" if line.source == SENT else line.source,
    )


_SIGNS: Final = {"+": ("add", "added ", "+"), "-": ("del", "removed ", "−"), "@": ("hunk", "", ""), " ": ("", "", "")}


@register.filter
def diff_row(row: Row) -> SafeString:
    """A row of a diff: its sign in a column of its own, so that the tint only repeats it."""
    look, word, sign = _SIGNS[row.sign]
    return markup(
        '<tr class="{}"><td class="no">{}{}</td><td class="untrusted" hx-disable hx-ignore dir="ltr">{}</td></tr>',
        look,
        markup('<span class="away">{}</span>', word) if word else "",
        sign,
        untrusted.render(row.text, None),
    )


@register.filter
def step_of(effect: Effect) -> SafeString:
    """The shape of an effect's state, by what came of it, beside the name of its tool in the chain."""
    shown = state_with(shown_state(effect, now_us()), effect.outcome, effect.leave)
    return markup("{}", SafeString(f'<span class="is-step">{shown}</span>'))


@register.filter
def as_moment(us: str) -> SafeString:
    """A moment whose microseconds came as text."""
    return moment(int(us))
