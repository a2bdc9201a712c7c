"""Template tags of the approval pages."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final
from uuid import UUID

from django import template
from django.template import Context
from django.urls import reverse
from django.utils.safestring import SafeString

from accounts.templatetags.layout import person_link
from approvals import labels
from approvals.checks.check_results import CheckResult, Compared
from approvals.confirmation import FOR_THIS
from approvals.diff.file_order import OrderedChanges, ShownFile, order_changes
from approvals.diff.from_arguments import Changes, Commit
from approvals.diff.shown_rows import ShownRow
from approvals.inbox.batch_table import ClaimPart
from approvals.inbox.inbox_rows import InboxRow as Entry
from approvals.models import Gate, Vote
from approvals.policies.engine import is_production_name
from approvals.review.call_titles import CallTitle
from approvals.review.card import MAX_GLANCE_LINES, SOURCE_AGENT, SOURCE_UNKNOWN, CardLine
from approvals.review.context import ChainStep, VoteView
from approvals.review.shown_checks import (
    ClaimPiece,
    MarkedValue,
    collect_marks,
    find_marked_offsets,
    find_shape,
    list_row_flags,
)
from db.clock import now_us
from journal.text_caches import cache_texts
from ledger.models import Effect
from web import untrusted_text
from web.templatetags.gatebook import (
    derive_shown_state,
    elapsed,
    grouped,
    mark,
    moment,
    render_state,
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
        where = environment_label(
            gate.effect_environment, gate.effect_ref_class, row.production_value
        )
        top = format_markup(
            '{}{}<span class="push">{}<span class="visually-hidden"> left</span></span>',
            reversibility_label(gate.reversibility),
            where,
            time_left(gate.decide_by_us),
        )
    else:
        ended = gate.decided_at_us or gate.ended_at_us or gate.decide_by_us
        top = format_markup('{}<span class="push">{}</span>', gate_state(gate), moment(ended))
    if row.groups and may_rule:
        top = format_markup(_TICK, str(gate.id), str(gate), _CHECKED[row.ticked]) + top
    marks = collect_marks(row.checks)
    what = _title_markup(row.title, marks, 32)
    return format_markup(_ENTRY, top, reverse("gate", args=[gate.id]), what, _gist(row, marks))


@register.filter
def entry_foot(row: Entry) -> SafeString:
    """Render the last line of a list entry: who asked, for whom, and when."""
    gate = row.gate
    whom = format_markup(" for {}", gate.whom) if gate.whom else SafeString("")
    by, since = untrusted_line(gate.agent_name, 40), age_text(gate.requested_at_us)
    return format_markup('<p class="by">{}{}, asked {} ago</p>', by, whom, since)


@register.filter
def check_flags(row: Entry) -> SafeString:
    """Render the results of the checks of a list entry, as shapes and words."""
    flags = [
        format_markup(
            '<span class="flag{}">{}{}</span>',
            _FLAG_STYLES[level],
            mark(shape),
            untrusted_text.name_hidden_characters(words),
        )
        for level, shape, words in list_row_flags(row.checks)
    ]
    return SafeString("\n".join(flags))


_FLAG_STYLES: Final = {
    "danger": SafeString(" is-danger"),
    "warning": SafeString(" is-danger"),
    "notice": SafeString(" is-mild"),
}
_TICK: Final = (
    '<input type="checkbox" form="batch" name="gate" value="{}" aria-label="Select {}"{}>'
)
_CHECKED: Final = {True: SafeString(" checked"), False: SafeString("")}
_ENTRY: Final = '<p class="entry-top">{}</p>\n<h3><a href="{}" data-gate>{}</a></h3>\n{}'
_MIDDLE_CUT_CHARACTERS: Final = 28  # of a value that fits as it is


def _gist(row: Entry, marks: Sequence[MarkedValue]) -> SafeString:
    """Render the telling arguments of a list entry, or else its summary."""
    telling = row.telling
    if telling:
        lines = [
            format_markup(
                "<dt>{}</dt><dd>{}</dd>",
                untrusted_line(label, 24),
                render_middle_cut(value, marks),
            )
            for label, value in telling
        ]
        return format_markup('<dl class="telling">{}</dl>\n', SafeString("".join(lines)))
    if not row.gist:
        return SafeString("")
    gist = _marked_line(row.gist, 90, marks, prose=row.prose)
    return format_markup('<p class="gist">{}</p>\n', gist)


def render_middle_cut(text: str, marks: Sequence[MarkedValue] = ()) -> SafeString:
    """Render a value on one line; if it is too long, its head gives way and its end stays.

    The title holds all of it. Marked characters near the end belong to the end.
    """
    offsets = find_marked_offsets(text, marks) if marks else ()
    cut = untrusted_text.find_tail_start(text) if len(text) > _MIDDLE_CUT_CHARACTERS else len(text)
    near = [offset - 1 for offset in offsets if len(text) - offset < 32]
    cut = max(0, min([cut, *near]))
    head, tail = (
        _wrap_untrusted(untrusted_text.render_marked(part, marked, limit, one_line=True))
        for part, marked, limit in (
            (text[:cut], {at for at in offsets if at < cut}, untrusted_text.MAX_HEAD_CHARACTERS),
            (text[cut:], {at - cut for at in offsets if at >= cut}, None),
        )
    )
    return format_markup(
        '<span class="mid" title="{}"><span>{}</span><span>{}</span></span>',
        untrusted_text.name_hidden_characters(text),
        head,
        tail,
    )


@register.filter
def middle_cut(text: object) -> SafeString:
    """`{{ value|middle_cut }}`: agent text on one line, cut in the middle if it is long."""
    return render_middle_cut(str(text))


def _title_markup(title: CallTitle, marks: Sequence[MarkedValue], limit: int) -> SafeString:
    """Render the title of a call; what it is about, and where, is bold."""
    parts = [untrusted_line(title.verb, limit)]
    if title.label:
        parts.append(untrusted_line(title.label, 24))
    if title.object:
        parts.append(format_markup("<b>{}</b>", _marked_line(title.object, 64, marks)))
    if title.repository:
        parts.append(format_markup("of <b>{}</b>", untrusted_line(title.repository, 32)))
    return SafeString(" ".join(parts))


@register.simple_tag(takes_context=True)
def call_title(context: Context, title: CallTitle) -> SafeString:
    """`{% call_title title %}`: the title of a request, with marked characters."""
    return _title_markup(title, _context_marks(context), 48)


@register.simple_tag(takes_context=True)
def marked_text(context: Context, text: str, prose: bool = False) -> SafeString:
    """`{% marked_text text %}`: as `numbered_text`, with the characters that checks mark."""
    marks = _context_marks(context)
    if not marks or text.count("\n") > MAX_GLANCE_LINES:
        return numbered_text(text, prose)
    return untrusted_text.render_marked(text, find_marked_offsets(text, marks), prose=prose)


@register.simple_tag(takes_context=True)
def marked_line(context: Context, text: str, limit: int = 120, prose: bool = False) -> SafeString:
    """`{% marked_line text 40 %}`: as `untrusted_line`, with the characters that checks mark."""
    return _marked_line(text, limit, _context_marks(context), prose=prose)


@register.simple_tag(takes_context=True)
def claim_piece(context: Context, piece: ClaimPiece) -> SafeString:
    """Render a part of the claim; contradicted words are underlined and have their letter."""
    marks = _context_marks(context)
    offsets = find_marked_offsets(piece.text, marks)
    text = untrusted_text.render_marked(piece.text, offsets, prose=True)
    if not piece.letter:
        return text
    return format_markup('<mark class="against">{}</mark> {}', text, note_letter(piece.letter))


@register.filter
@lru_cache(maxsize=64)
def note_letter(letter: str) -> SafeString:
    """Render the letter of a contradiction, the same on the claim and beside the fact."""
    if not letter:
        return SafeString("")
    return format_markup(
        '<span class="note-letter"><span class="visually-hidden">note </span>{}</span>', letter
    )


@register.filter
def check_shape(result: CheckResult) -> str:
    """Return the shape of a result of a check in the sprite."""
    return find_shape(result)


@register.filter
def spelled_value(line: Compared, is_first: bool) -> SafeString:
    """Render a compared value letter by letter; letters of the first value are reversed."""
    return _wrap_untrusted(
        untrusted_text.render_marked(
            line.value, line.marked, 120, one_line=True, style="odd" if is_first else "even-letter"
        )
    )


@register.simple_tag
@lru_cache(maxsize=64)
def source_sign(kind: str, detail: str = "") -> SafeString:
    """`{% source_sign "verified" %}`: who computed a fact, as a shape with a hidden word."""
    is_claim = kind == "claimed"
    words = "claimed by the agent" if is_claim else "verified by Gatebook"
    words = f"{words}: {detail}" if detail else words
    return format_markup(
        '<span class="src{}" title="{}">{}<span class="visually-hidden">{}</span></span>',
        SafeString(" is-claimed") if is_claim else SafeString(""),
        words[0].upper() + words[1:],
        mark("pen" if is_claim else "tick"),
        words,
    )


@register.filter
def line_sign(line: CardLine) -> SafeString:
    """Render the source of a line as a shape; an unknown value has none."""
    if line.source == SOURCE_UNKNOWN:
        return SafeString("")
    return source_sign("claimed" if line.source == SOURCE_AGENT else "verified")


def _context_marks(context: Context) -> Sequence[MarkedValue]:
    shown = context.get("review")
    return shown.marks if shown is not None else ()


def _marked_line(
    text: str, limit: int, marks: Sequence[MarkedValue], *, prose: bool = False
) -> SafeString:
    offsets = find_marked_offsets(text, marks) if marks else ()
    if not offsets:
        return untrusted_line(text, limit, prose=prose)
    return _wrap_untrusted(
        untrusted_text.render_marked(text, offsets, limit, one_line=True, prose=prose)
    )


def _wrap_untrusted(markup: SafeString) -> SafeString:
    return format_markup('<span class="untrusted" hx-disable hx-ignore dir="ltr">{}</span>', markup)


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
    at = moment(given_at_us)
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


@register.simple_tag(takes_context=True)
def vote_state(context: Context, vote: Vote) -> SafeString:
    """Render who gave which answer, with its shape and colour."""
    colour, shape, text = _VOTE_STATES[vote.answer]
    name = person_link(context, vote.user_id, vote.user.get_username())
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
        return format_markup("For <b>{}</b> {}", line.text, line_sign(line))
    return format_markup("{}.", line.text)


@register.simple_tag
@cache_texts(256)
def environment_label(environment: str, ref_class: str = "", named: str = "") -> SafeString:
    """Render the environment of an effect.

    Production is stamped, whether the agent, the ref class or an argument (`named`) names it. Any
    other name is only the agent's claim.
    """
    is_production = is_production_name(environment)
    if named and not is_production and ref_class != "production":
        stamp = format_markup(
            '<span class="env is-prod" title="{}">production</span>',
            f"an argument names {untrusted_text.name_hidden_characters(named[:60])}",
        )
        word = format_markup('<span class="quiet">says {}</span>', untrusted_line(environment, 20))
        return stamp + word if environment else stamp
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
        f"{seconds // 3600}\u00a0h {seconds % 3600 // 60}\u00a0min"
        if seconds < 48 * 3600
        else f"{seconds // 86400}\u00a0d"
    )


@register.filter
def age_text(us: int) -> str:
    """Format an age in one unit: 11 min, 3 h, 2 d."""
    return labels.format_age(us, now_us()).replace(" ", "\u00a0")


@register.filter
def full_text(text: str) -> SafeString:
    """Render all text of an agent as inert markup, hidden characters as tokens."""
    return untrusted_text.render_untrusted(text, None)


@register.filter
def check_text(text: str, limit: int = 200) -> SafeString:
    """Render a sentence of a check on one line; a duration is not broken before its unit."""
    return SafeString(_DURATION.sub("\\1\u00a0\\2", untrusted_line(text, limit)))


_DURATION: Final = re.compile(r"\b(\d+) (ms|s|min|h|d)\b")


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
def claim_part(part: ClaimPart) -> SafeString:
    """Render a part of a claim; a contradicted phrase with the letter of its contradiction."""
    text = untrusted_line(part.text, len(part.text))
    if not part.letter:
        return text
    return format_markup('<mark>{}</mark> <span class="ref">{}</span>', text, part.letter)


@register.filter
def cell_cut(text: str, most: int = 40) -> SafeString:
    """Render agents' text for a cell; longer text loses its middle, not its end."""
    return untrusted_line(untrusted_text.cut_middle(text, most), most)


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


_SIGN_CELLS: Final = {  # sign -> class of the row, its cell, element of the words that differ
    "+": ("add", '<span class="visually-hidden">added </span>+', "ins"),
    "-": ("del", '<span class="visually-hidden">removed </span>−', "del"),
    "@": ("hunk", "", ""),
    " ": ("", "", ""),
}


@register.simple_tag
def ordered_changes(changes: Changes) -> OrderedChanges:
    """`{% ordered_changes card.changes as ordered %}`: the order of danger."""
    return order_changes(changes)


@register.filter
def diff_rows(shown: ShownFile) -> SafeString:
    """Render the head and the rows of a file's table.

    Sign and marks of words carry the meaning, never colour alone. Code and not a template: a diff
    has thousands of rows.
    """
    rows = shown.build_rows()
    columns = [
        (name, css_class, heading)
        for name, css_class, heading in _NUMBER_COLUMNS
        if any(getattr(row, name) is not None for row in rows)
    ]
    head = "".join(f'<th scope="col">{heading}</th>' for _name, _class, heading in columns)
    parts = [f'<thead class="visually-hidden"><tr>{head}{_HEAD_CELLS}</tr></thead>\n<tbody>\n']
    for is_heading, listed in groupby(rows, key=_is_patch_heading):
        if is_heading:
            cells = "".join(f'<td class="{css_class}"></td>' for _name, css_class, _ in columns)
            texts = " ".join(
                f'<span class="nowrap">{untrusted_text.render_untrusted(row.text, None)}</span>'
                for row in listed
            )
            parts.append(_DIFF_ROW.format("hunk", cells, "", texts))
        else:
            parts += [_render_diff_row(row, columns) for row in listed]
    parts.append("</tbody>")
    return SafeString("".join(parts))


_NUMBER_COLUMNS: Final = (
    ("old", "line-number is-old", "Line before"),
    ("new", "line-number is-new", "Line after"),
)
_HEAD_CELLS: Final = '<th scope="col">Change</th><th scope="col">Text</th>'
_DIFF_ROW: Final = (
    '<tr class="{}">{}<td class="line-sign">{}</td>'
    '<td class="untrusted" hx-disable hx-ignore dir="ltr">{}</td></tr>\n'
)


def _is_patch_heading(row: ShownRow) -> bool:
    """Return True for a heading that names the file; such lines share one row."""
    return row.sign == "@" and not row.text.startswith("@@")


def _render_diff_row(row: ShownRow, columns: list[tuple[str, str, str]]) -> str:
    css_class, sign, element = _SIGN_CELLS[row.sign]
    text = (
        untrusted_text.render_marked_words(row.text, row.spans, element)
        if row.spans
        else untrusted_text.render_untrusted(row.text, None)
    )
    cells = ""
    for name, column_class, _heading in columns:
        number = row.old if name == "old" else row.new
        cells += f'<td class="{column_class}">{"" if number is None else number}</td>'
    return _DIFF_ROW.format(css_class, cells, sign, text)


@register.filter
def commit_row(commit: Commit) -> SafeString:
    """Render a commit in full as a row: removed or added in words, name, title, author."""
    removed = commit.sign == "-"
    author = (
        format_markup(' <span class="quiet">{}</span>', full_text(commit.author))
        if commit.author
        else SafeString("")
    )
    return format_markup(
        '<tr class="{}"><td class="line-sign">{}</td>'
        '<td class="untrusted" hx-disable hx-ignore dir="ltr">{} {}{}</td></tr>\n',
        "del" if removed else "add",
        SafeString("− removed" if removed else "+ added"),
        full_text(commit.name),
        full_text(commit.title),
        author,
    )


@register.filter
def step_state(effect: Effect) -> SafeString:
    """Render the state of an effect as a shape, for the list of neighbouring effects."""
    shown = render_state(derive_shown_state(effect, now_us()), effect.outcome, effect.permission)
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
