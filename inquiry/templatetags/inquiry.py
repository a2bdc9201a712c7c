"""Template filters and tags that several pages share."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Final
from uuid import UUID

from django import template
from django.urls import reverse
from django.utils.safestring import SafeString

from approvals import words
from inquiry import clocks, liveness, resolve_page, shown
from inquiry.bars import Bar, Lanes
from inquiry.bodies import Excerpt
from inquiry.clocks import Skew
from inquiry.packing import plain
from inquiry.sentences import Moment, Sentence
from inquiry.timeline import Row
from inquiry.views.place import Place
from journal import untrusted
from journal.clock import now_us
from journal.templatetags.gatebook import (
    STATES,
    elapsed,
    mark,
    moment,
    shown_state,
    state_with,
    status,
    untrusted_line,
)
from journal.untrusted import markup
from ledger import verdict_words
from ledger.models import Effect
from ledger.models_tools import Tool
from ledger.verdicts import Verdict
from sessions.models import Session

register = template.Library()
_NOBODY = UUID(int=0)


@register.simple_tag
def place_url(place: Place, **where: object) -> str:
    """`{% place_url place before=12 %}`.

    Query string with the same filters and another window.
    """
    return place.url(**where)


# A list repeats names of tools, branches and repositories. Each is marked up once.
@lru_cache(maxsize=4096)
def _name(text: str, limit: int) -> SafeString:
    return untrusted_line(text, limit)


@lru_cache(maxsize=256)
def _leave(leave: str, basis: str) -> SafeString:
    text = f"{leave}, {basis}" if basis else leave
    if leave == "bypassed":
        return markup('<span class="flag is-danger">{}{}</span>', mark("warn"), text)
    return markup("{}", text)


@lru_cache(maxsize=4096)
def _target(repository: str, ref: str, ref_class: str, environment: str) -> SafeString:
    parts = []
    if repository:
        parts.append(_name(repository, 40))
    if ref:
        parts.append(markup('<span class="quiet">@</span>{}', _name(ref, 40)))
    if ref_class in ("production", "protected"):
        parts.append(markup(" <b>{}</b>", ref_class))
    if environment:
        parts.append(markup(" {}", _name(environment, 20)))
    return SafeString("".join(parts))


@register.filter
def name(text: str, limit: int = 40) -> SafeString:
    """Return `untrusted_line` for names that a list repeats."""
    return _name(text, limit)


@register.filter
def process(text: str) -> SafeString:
    """Return the short name of a process; the title attribute has the full name."""
    short = shown.short_process(text)
    if short == text and len(text) <= _PROCESS:
        return untrusted_line(text, _PROCESS)
    return markup('<span title="{}">{}</span>', plain(text, 200), untrusted_line(short, _PROCESS))


_PROCESS: Final = 24


@register.filter
def state_of(effect: Effect, now: int | None = None) -> SafeString:
    """Return the `state` tag with the outcome of an acknowledged effect."""
    word = shown_state(effect, now_us() if now is None else now)
    has_answer = effect.state == "acknowledged" and effect.outcome != "unknown"
    return state_with(word, effect.outcome if has_answer else "", effect.leave)


@register.filter
def shown_status(session: Session) -> str:
    """Return the displayed word for a session's status."""
    return liveness.of(session)


@register.filter
def status_of(session: Session) -> SafeString:
    """Return shape, word and colour of a session's displayed status."""
    return status(liveness.of(session))


@register.filter
def lacks_worker(session: Session) -> bool:
    """Return True if no worker is active in a session that has not ended."""
    return liveness.of(session) in liveness.WORDS


@cache
def _prefix(name: str) -> str:
    """Return the address of an object's page without the object's id."""
    return reverse(name, args=[_NOBODY]).removesuffix(f"{_NOBODY}/")


@register.filter
def page_of(identity: UUID, name: str) -> str:
    """`{{ row.id|page_of:"effect" }}`.

    Same as the url tag, without resolving each link of a list.
    """
    return f"{_prefix(name)}{identity}/"


@register.filter
def effect_cell(row: Row, asof: str = "") -> SafeString:
    """Return the head of an effect's row.

    Handle, tool, and a flag if it violates a rule.

    `asof` is the query string with which its page shows another moment, empty for now.
    """
    effect = row.effect
    tool = _name(effect.tool, 32) if effect.tool else _NO_PLAN
    handle, link = str(effect), page_of(effect.id, "effect") + asof
    return markup(_EFFECT_CELL, handle, link, handle, tool, _VIOLATION if effect.violates else "")


_EFFECT_CELL: Final = (
    '<th role=rowheader scope=row data-label="Effect">'
    '<a class="handle" id="{}" href="{}">{}</a> {}{}</th>'
)
_NO_PLAN: Final = SafeString('<span class="quiet">plan not arrived</span>')
_VIOLATION: Final = markup(' <span class="flag is-danger">{}violation</span>', mark("warn"))


@register.filter
def arguments_cell(row: Row) -> SafeString:
    """Return the summary of a call in a row of effects."""
    gist = row.gist
    if gist is not None:
        content = untrusted_line(gist)
    elif row.effect.plan_position:
        content = SafeString('<span class="quiet">erased</span>')
    else:
        content = SafeString("")
    return markup("<td role=cell data-label=Arguments class=gist>{}</td>", content)


@register.filter
def in_session(row: Row, asof: str = "") -> SafeString:
    """Return a link to the effect in its session; `asof` as for `effect_cell`."""
    handle, link = (
        str(row.effect),
        page_of(row.effect.session_id, "session") + (f"{asof}&" if asof else "?"),
    )
    return markup(
        '<a href="{}at={}#{}">s_{}</a>', link, handle, handle, str(row.effect.session_position)
    )


@register.filter
def target(row: Row) -> SafeString:
    """Return the target of an effect.

    Repository@ref, an important ref class, environment.
    """
    effect = row.effect
    return _target(effect.repository_name or "", effect.ref, effect.ref_class, effect.environment)


@register.filter
def leave(effect: Effect) -> SafeString:
    """Return the permission with its basis.

    Effects that ran without permission are flagged.
    """
    return _leave(effect.leave, effect.leave_basis)


@register.filter
def row_time(us: int | None, day: str) -> SafeString:
    """Return the time of a row in milliseconds.

    The day is left out if the column head shows it (`day`).
    """
    if us is None or not day:
        return moment(us, "ms")
    at = datetime.fromtimestamp(us / 1_000_000, UTC).isoformat(timespec="milliseconds")
    return markup("<time datetime={}Z data-form=time>{}</time>", at[:23], at[11:23])


@register.filter
def how(effect: Effect, hows: Mapping[UUID, Sequence[str]]) -> str:
    """Return how an effect belongs to a chain."""
    return "; ".join(hows.get(effect.id, ()))


@register.filter
def answered(answer: str) -> str:
    """Return a vote as a word: approved, denied …"""
    return words.ANSWERS[answer][0]


@register.filter
def shift(skew: Skew) -> str:
    """Return how an agent clock is corrected: plus 3.2 s."""
    return f"{'minus' if skew.shift_us < 0 else 'plus'} {elapsed(abs(skew.shift_us))}"


@register.filter
def corrected(bar: Bar, lanes: Lanes) -> SafeString:
    """Return when an effect was first reported, by the corrected clock."""
    return moment(
        clocks.corrected(bar.steps[0].agent_us, lanes.skews.get(bar.effect.session_id)), "ms"
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
            markup_text, after = markup_text + markup("{}", part), part
    return markup_text


@register.filter
def state_class(word: str) -> str:
    """Return the CSS class with the colour of a shown state."""
    return _look(word)[0]


@register.filter
def state_shape(word: str) -> str:
    """Return the sprite shape of a shown state."""
    return _look(word)[1]


def _look(word: str) -> tuple[str, str]:
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
    word, look = verdict_words.WORDS[verdict.answer]
    chip = '<a class="chip {}" href="{}#row-{}"><b>{}</b> {}{}</a>'
    return markup(
        chip, look, _table(), verdict.row, word, verdict_words.short(verdict), _until(verdict)
    )


def _until(verdict: Verdict) -> SafeString:
    """Return how long a wait lasts, or the time from which a retry is safe."""
    if verdict.until_us is None:
        return SafeString("")
    if verdict.answer == "wait":
        seconds = max(0, (verdict.until_us - now_us()) // 1_000_000)
        return markup(
            ' <span data-left="{}">{}</span>',
            str(seconds),
            elapsed(seconds * 1_000_000).replace(".0 s", " s"),
        )
    return markup(" until {}", moment(verdict.until_us, "until"))


@cache
def _table() -> str:
    return reverse("verdicts")


@register.filter
def verdict_look(verdict: Verdict) -> str:
    """Return the CSS class that colours a verdict."""
    return verdict_words.WORDS[verdict.answer][1]


@register.filter
def verdict_word(verdict: Verdict) -> str:
    """Return the verb of a verdict."""
    return verdict_words.WORDS[verdict.answer][0]


@register.filter
def because(verdict: Verdict, tool: Tool | None) -> str:
    """Return the reason of a verdict in one sentence for the declared tool."""
    return verdict_words.because(verdict, tool.tool_class if tool is not None else "")


@register.filter
def in_words(answer: str) -> str:
    """Return a resolution as words: it happened, it did not happen …"""
    return resolve_page.ANSWERS[answer][1]


@register.filter
def changes(verdict: Verdict) -> str:
    """Return what would change a verdict; empty if nothing would."""
    text = verdict_words.changes(verdict)
    return "" if text == "Nothing." else text


@register.inclusion_tag("_untrusted.html")
def untrusted_excerpt(piece: Excerpt, label: str) -> dict[str, object]:
    """Return a labelled block with the beginning of agent text.

    It shows how many bytes are cut.
    """
    return {
        "label": label,
        "markup": _excerpt(piece),
        "hidden": untrusted.hidden_count(piece.text),
        "size": piece.octets,
    }


@register.simple_tag
def agent_value(piece: Excerpt) -> SafeString:
    """Return an argument value as agent text; a value with several lines gets a box."""
    look = "agent untrusted" if "\n" in piece.text or len(piece.text) > _ONE_LINE else "untrusted"
    return markup(
        '<code class="{}" hx-disable hx-ignore dir="ltr">{}</code>', look, _excerpt(piece)
    )


_ONE_LINE = 160


def _excerpt(piece: Excerpt) -> SafeString:
    rendered = untrusted.render(piece.text, None)
    if not piece.cut:
        return rendered
    remaining_bytes = piece.octets - untrusted.byte_length(piece.text)
    return markup(
        '{}<span class="token is-quiet">[cut here: {} more bytes]</span>',
        rendered,
        f"{remaining_bytes:,}",
    )
