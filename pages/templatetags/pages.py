"""Template filters and tags that several pages share."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Final
from uuid import UUID

from django import template
from django.urls import reverse
from django.utils.safestring import SafeString

from approvals import labels
from approvals.models import Vote
from db.clock import now_us
from display import display_state
from display.effect_headline import Moment, Sentence
from display.effect_table import EffectTableRow
from display.entry_bodies import Excerpt
from display.page_params import PagePlace
from display.permission_labels import describe_permission
from display.state_textures import STATE_TEXTURES
from display.urls_of_rows import build_row_url
from ledger.models import Effect, Tool
from ledger.verdicts import labels as verdicts_labels
from ledger.verdicts.table import Verdict
from pages.effects import resolve
from pages.timeline import clock_skew
from pages.timeline.bars import Bar, TimelineWindow
from pages.timeline.clock_skew import Skew
from pages.timeline.svg_layout import plain_label
from recovery import liveness
from sessions.models import Session
from web import untrusted_text
from web.templatetags.gatebook import (
    STATES,
    derive_shown_state,
    elapsed,
    mark,
    moment,
    render_state,
    status,
    untrusted_line,
)
from web.untrusted_text import format_markup

register = template.Library()


@register.simple_tag
def place_url(place: PagePlace, **where: object) -> str:
    """`{% place_url place before=12 %}`.

    Query string with the same filters and another window.
    """
    return place.url(**where)


# A list repeats names of tools, branches and repositories. Each is marked up once.
@lru_cache(maxsize=4096)
def _name(text: str, limit: int) -> SafeString:
    return untrusted_line(text, limit)


@lru_cache(maxsize=256)
def _permission(permission: str, basis: str) -> SafeString:
    text = describe_permission(permission, basis)
    if permission == "bypassed":
        return format_markup('<span class="flag is-danger">{}{}</span>', mark("warn"), text)
    return format_markup("{}", text)


@lru_cache(maxsize=4096)
def _target(repository: str, ref: str, ref_class: str, environment: str) -> SafeString:
    parts = []
    if repository:
        parts.append(_name(repository, 40))
    if ref:
        parts.append(format_markup('<span class="quiet">@</span>{}', _name(ref, 40)))
    if ref_class in ("production", "protected"):
        parts.append(format_markup(" <b>{}</b>", ref_class))
    if environment:
        parts.append(format_markup(" {}", _name(environment, 20)))
    return SafeString("".join(parts))


@register.filter
def name(text: str, limit: int = 40) -> SafeString:
    """Return `untrusted_line` for names that a list repeats."""
    return _name(text, limit)


@register.filter
def process(text: str) -> SafeString:
    """Return the short name of a process; the title attribute has the full name."""
    short = display_state.short_process(text)
    if short == text and len(text) <= _PROCESS:
        return untrusted_line(text, _PROCESS)
    return format_markup(
        '<span title="{}">{}</span>', plain_label(text, 200), untrusted_line(short, _PROCESS)
    )


_PROCESS: Final = 24


@register.filter
def shown_effect_state(effect: Effect, now: int | None = None) -> SafeString:
    """Return the `state` tag with the outcome of an acknowledged effect."""
    word = derive_shown_state(effect, now_us() if now is None else now)
    has_answer = effect.state == "acknowledged" and effect.outcome != "unknown"
    return render_state(word, effect.outcome if has_answer else "", effect.permission)


@register.filter
def shown_status(session: Session) -> str:
    """Return the displayed word for a session's status."""
    return liveness.get_liveness(session)


@register.filter
def session_status(session: Session) -> SafeString:
    """Return shape, word and colour of a session's displayed status."""
    return status(liveness.get_liveness(session))


@register.filter
def lacks_worker(session: Session) -> bool:
    """Return True if no worker is active in a session that has not ended."""
    return liveness.get_liveness(session) in liveness.WORKERLESS


@register.filter
def page_url(identity: UUID, name: str) -> str:
    """`{{ row.id|page_url:"effect" }}`.

    Same as the url tag, without resolving each link of a list.
    """
    return build_row_url(name, identity)


def effect_cell(row: EffectTableRow, asof: str = "") -> SafeString:
    """Return the head of an effect's row.

    Handle, tool, and a flag if it violates a rule.

    `asof` is the query string with which its page shows another moment, empty for now.
    """
    effect = row.effect
    tool = _name(effect.tool, 32) if effect.tool else _NO_PLAN
    # All parts are markup, or ours without a sign that needs escaping.
    return SafeString(
        f'<th role=rowheader scope=row data-label="Effect"><a class="handle" id="{effect}"'
        f' href="{page_url(effect.id, "effect")}{asof}">{effect}</a> {tool}'
        f"{_VIOLATION if effect.violates else ''}</th>"
    )


_NO_PLAN: Final = SafeString('<span class="quiet">plan not arrived</span>')
_VIOLATION: Final = format_markup(' <span class="flag is-danger">{}violation</span>', mark("warn"))


def arguments_cell(row: EffectTableRow) -> SafeString:
    """Return the summary of a call in a row of effects."""
    gist = row.gist
    if gist is not None:
        content = untrusted_line(gist)
    elif row.effect.plan_position:
        content = SafeString('<span class="quiet">erased</span>')
    else:
        content = SafeString("")
    return format_markup("<td role=cell data-label=Arguments class=gist>{}</td>", content)


def session_link(row: EffectTableRow, asof: str = "") -> SafeString:
    """Return a link to the effect in its session; `asof` as for `effect_cell`."""
    effect = row.effect
    link = page_url(effect.session_id, "session") + (f"{asof}&amp;" if asof else "?")
    return SafeString(f'<a href="{link}at={effect}#{effect}">s_{effect.session_position}</a>')


@register.filter
def target(row: EffectTableRow) -> SafeString:
    """Return an effect's target: repository@ref, an important ref class, environment."""
    effect = row.effect
    return _target(effect.repository_name or "", effect.ref, effect.ref_class, effect.environment)


@register.filter
def permission(effect: Effect) -> SafeString:
    """Return the permission with its basis; flag effects that ran without one."""
    return _permission(effect.permission, effect.permission_basis)


def row_time(us: int | None, day: str) -> SafeString:
    """Return a row's time in milliseconds, without a `day` that the column head has."""
    if us is None or not day:
        return moment(us, "ms")
    at = datetime.fromtimestamp(us / 1_000_000, UTC).isoformat(timespec="milliseconds")
    return SafeString(f"<time datetime={at[:23]}Z data-form=time>{at[11:23]}</time>")


@register.filter
def chain_role(effect: Effect, hows: Mapping[UUID, Sequence[str]]) -> str:
    """Return how an effect belongs to a chain."""
    return "; ".join(hows.get(effect.id, ()))


@register.filter
def answer_word(answer: str) -> str:
    """Return a vote as a word: approved, denied …"""
    return labels.VOTE_ANSWER_LABELS[answer][0]


@register.filter
def shift(skew: Skew) -> str:
    """Return how an agent clock is corrected: plus 3.2 s."""
    return f"{'minus' if skew.shift_us < 0 else 'plus'} {elapsed(abs(skew.shift_us))}"


@register.filter
def corrected_time(bar: Bar, lanes: TimelineWindow) -> SafeString:
    """Return when an effect was first reported, by the corrected clock."""
    return moment(
        clock_skew.corrected_us(bar.steps[0].agent_us, lanes.skews.get(bar.effect.session_id)), "ms"
    )


@register.filter
def sentence(parts: Sentence) -> SafeString:
    """Return a sentence with its times in the reader's clock.

    After a preposition, with the clock time.
    """
    markup_text, after = SafeString(""), ""
    for part in parts:
        if isinstance(part, Moment):
            markup_text += moment(
                part.us, "until" if after.endswith((" at ", " until ", " before ")) else ""
            )
        else:
            markup_text, after = markup_text + format_markup("{}", part), part
    return markup_text


@register.filter
def state_class(word: str) -> str:
    """Return the CSS class with the colour of a shown state."""
    return _find_style(word)[0]


@register.filter
def state_shape(word: str) -> str:
    """Return the sprite shape of a shown state."""
    return _find_style(word)[1]


def _find_style(word: str) -> tuple[str, str]:
    return (
        ("is-awaiting", "decided")
        if word == "decided"
        else STATES.get(word, ("is-planned", "dash"))
    )


@register.simple_tag
def verdict_chip(verdict: Verdict) -> SafeString:
    """`{% verdict_chip verdict %}`.

    Verb and reason of a verdict, linked to its row of the table.
    """
    word, style = verdicts_labels.ANSWER_LABELS[verdict.answer]
    chip = '<a class="chip {}" href="{}#row-{}"><b>{}</b> {}{}</a>'
    return format_markup(
        chip,
        style,
        _table(),
        verdict.row,
        word,
        verdicts_labels.short_reason(verdict),
        _until(verdict),
    )


def _until(verdict: Verdict) -> SafeString:
    """Return how long a wait lasts, or the time from which a retry is safe."""
    if verdict.until_us is None:
        return SafeString("")
    if verdict.answer == "wait":
        seconds = max(0, (verdict.until_us - now_us()) // 1_000_000)
        return format_markup(
            ' <span data-left="{}">{}</span>',
            str(seconds),
            elapsed(seconds * 1_000_000).replace(".0 s", " s"),
        )
    return format_markup(" until {}", moment(verdict.until_us, "until"))


@cache
def _table() -> str:
    return reverse("verdicts")


@register.filter
def verdict_look(verdict: Verdict) -> str:
    """Return the CSS class that colours a verdict."""
    return verdicts_labels.ANSWER_LABELS[verdict.answer][1]


@register.filter
def verdict_word(verdict: Verdict) -> str:
    """Return the verb of a verdict."""
    return verdicts_labels.ANSWER_LABELS[verdict.answer][0]


@register.filter
def verdict_reason(verdict: Verdict, tool: Tool | None) -> str:
    """Return the reason of a verdict in one sentence for the declared tool."""
    return verdicts_labels.explain_verdict(verdict, tool.tool_class if tool is not None else "")


@register.filter
def answer_words(answer: str) -> str:
    """Return a resolution as words: it happened, it did not happen …"""
    return resolve.ANSWERS[answer][1]


@register.filter
def changes(verdict: Verdict) -> str:
    """Return what would change a verdict; empty if nothing would."""
    text = verdicts_labels.describe_changes(verdict)
    return "" if text == "Nothing." else text


@register.inclusion_tag("_untrusted.html")
def untrusted_excerpt(piece: Excerpt, label: str) -> dict[str, object]:
    """Return a labelled block with the beginning of agent text and the bytes cut."""
    return {
        "label": label,
        "markup": _excerpt(piece),
        "hidden": untrusted_text.count_hidden_characters(piece.text),
        "size": piece.octets,
    }


@register.simple_tag
def agent_value(piece: Excerpt) -> SafeString:
    """Return an argument value as agent text; a value with several lines gets a box."""
    style = "agent untrusted" if "\n" in piece.text or len(piece.text) > _ONE_LINE else "untrusted"
    return format_markup(
        '<code class="{}" hx-disable hx-ignore dir="ltr">{}</code>', style, _excerpt(piece)
    )


_ONE_LINE = 160


def _excerpt(piece: Excerpt) -> SafeString:
    rendered = untrusted_text.render_untrusted(piece.text, None)
    if not piece.cut:
        return rendered
    remaining_bytes = piece.octets - untrusted_text.utf8_length(piece.text)
    return format_markup(
        '{}<span class="token is-quiet">[cut here: {} more bytes]</span>',
        rendered,
        f"{remaining_bytes:,}",
    )


@register.filter
def answer_time(vote: Vote) -> str:
    """Return how long after its request was shown a vote came."""
    return elapsed(vote.voted_at_us - vote.shown_at_us)


@register.inclusion_tag("_swatch.html")
def state_swatch(entity: str, state: str, style: str) -> dict[str, str]:
    """Render the fill of a state as charts draw it, for a legend."""
    return {"style": style, "texture": STATE_TEXTURES[entity][state]}
