"""What the reading pages say in one way: links to neighbouring pages, leave, sentences with times in them."""

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
    """`{% place_url place before=12 %}`: the query string with the same filters and another place in the pages."""
    return place.url(**where)


# A list says the same names again and again: of tools, branches, repositories. Each is marked up once.
@lru_cache(maxsize=4096)
def _name(text: str, limit: int) -> SafeString:
    return untrusted_line(text, limit)


@lru_cache(maxsize=256)
def _leave(leave: str, basis: str) -> SafeString:
    words = f"{leave}, {basis}" if basis else leave
    if leave == "bypassed":
        return markup('<span class="flag is-danger">{}{}</span>', mark("warn"), words)
    return markup("{}", words)


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
    """`untrusted_line` for names that a list repeats."""
    return _name(text, limit)


@register.filter
def process(text: str) -> SafeString:
    """A process by a short name; its whole one is told to whoever points at it."""
    short = shown.short_process(text)
    if short == text and len(text) <= _PROCESS:
        return untrusted_line(text, _PROCESS)
    return markup('<span title="{}">{}</span>', plain(text, 200), untrusted_line(short, _PROCESS))


_PROCESS: Final = 24


@register.filter
def state_of(effect: Effect, now: int | None = None) -> SafeString:
    """The `state` tag for the rows of a list, with what came of it beside it: ok in plain, an error with its shape."""
    word = shown_state(effect, now_us() if now is None else now)
    answered = effect.state == "acknowledged" and effect.outcome != "unknown"
    return state_with(word, effect.outcome if answered else "", effect.leave)


@register.filter
def shown_status(session: Session) -> str:
    """The word for a session's status as people see it."""
    return liveness.of(session)


@register.filter
def status_of(session: Session) -> SafeString:
    """Shape, word and colour of a session's status as people see it."""
    return status(liveness.of(session))


@register.filter
def lacks_worker(session: Session) -> bool:
    """True where nobody is at work on a session that has not ended."""
    return liveness.of(session) in liveness.WORDS


@cache
def _prefix(name: str) -> str:
    """Where the pages of a kind of object stand, without the object's id."""
    return reverse(name, args=[_NOBODY]).removesuffix(f"{_NOBODY}/")


@register.filter
def page_of(identity: UUID, name: str) -> str:
    """`{{ one.id|page_of:"effect" }}`: what the url tag says, without resolving each of the many links of a list."""
    return f"{_prefix(name)}{identity}/"


@register.filter
def effect_cell(row: Row, asof: str = "") -> SafeString:
    """The head of an effect's row: its handle, its tool, and a flag when it violates a rule.

    `asof` is the query string with which its page shows another moment, "" for now.
    """
    effect = row.effect
    tool = _name(effect.tool, 32) if effect.tool else _NO_PLAN
    handle, link = str(effect), page_of(effect.id, "effect") + asof
    return markup(_EFFECT_CELL, handle, link, handle, tool, _VIOLATION if effect.violates else "")


_EFFECT_CELL: Final = '<th role=rowheader scope=row data-label="Effect"><a class="handle" id="{}" href="{}">{}</a> {}{}</th>'
_NO_PLAN: Final = SafeString('<span class="quiet">plan not arrived</span>')
_VIOLATION: Final = markup(' <span class="flag is-danger">{}violation</span>', mark("warn"))


@register.filter
def arguments_cell(row: Row) -> SafeString:
    """The gist of a call in a row of effects."""
    gist = row.gist
    if gist is not None:
        shown = untrusted_line(gist)
    elif row.effect.plan_position:
        shown = SafeString('<span class="quiet">erased</span>')
    else:
        shown = SafeString("")
    return markup("<td role=cell data-label=Arguments class=gist>{}</td>", shown)


@register.filter
def in_session(row: Row, asof: str = "") -> SafeString:
    """The effect's session, linked to where the effect stands in it; `asof` as for `effect_cell`."""
    handle, link = (
        str(row.effect),
        page_of(row.effect.session_id, "session") + (f"{asof}&" if asof else "?"),
    )
    return markup(
        '<a href="{}at={}#{}">s_{}</a>', link, handle, handle, str(row.effect.session_position)
    )


@register.filter
def target(row: Row) -> SafeString:
    """What an effect acts upon, in a row: repository@ref, a class that matters, environment."""
    effect = row.effect
    return _target(effect.repository_name or "", effect.ref, effect.ref_class, effect.environment)


@register.filter
def leave(effect: Effect) -> SafeString:
    """Leave with its basis; what ran without leave stands out, in words."""
    return _leave(effect.leave, effect.leave_basis)


@register.filter
def row_time(us: int | None, day: str) -> SafeString:
    """The time of a row: to the millisecond, with its day unless the head of the column names it (`day`)."""
    if us is None or not day:
        return moment(us, "ms")
    at = datetime.fromtimestamp(us / 1_000_000, UTC).isoformat(timespec="milliseconds")
    return markup("<time datetime={}Z data-form=time>{}</time>", at[:23], at[11:23])


@register.filter
def how(effect: Effect, hows: Mapping[UUID, Sequence[str]]) -> str:
    """How an effect belongs to a chain."""
    return "; ".join(hows.get(effect.id, ()))


@register.filter
def answered(answer: str) -> str:
    """What somebody answered at a gate: approved, denied …"""
    return words.ANSWERS[answer][0]


@register.filter
def shift(skew: Skew) -> str:
    """How a producer's clock is corrected: plus 3.2 s."""
    return f"{'minus' if skew.shift_us < 0 else 'plus'} {elapsed(abs(skew.shift_us))}"


@register.filter
def corrected(bar: Bar, lanes: Lanes) -> SafeString:
    """When an effect was first told of, by the corrected clock."""
    return moment(
        clocks.corrected(bar.steps[0].agent_us, lanes.skews.get(bar.effect.session_id)), "ms"
    )


@register.filter
def sentence(parts: Sentence) -> SafeString:
    """A sentence whose times are told in the reader's clock: after a preposition a clock stays beside the age."""
    said, after = SafeString(""), ""
    for part in parts:
        if isinstance(part, Moment):
            said += moment(
                part.us, "until" if after.endswith((" at ", " until ", " before ")) else ""
            )
        else:
            said, after = said + markup("{}", part), part
    return said


@register.filter
def state_class(word: str) -> str:
    """The class that gives a component the colour of a shown state."""
    return _look(word)[0]


@register.filter
def state_shape(word: str) -> str:
    """The shape of a shown state in the sprite."""
    return _look(word)[1]


def _look(word: str) -> tuple[str, str]:
    return (
        ("is-awaiting", "decided")
        if word == "decided"
        else STATES.get(word, ("is-planned", "dash"))
    )


@register.simple_tag
def verdict_chip(found: Verdict) -> SafeString:
    """`{% verdict_chip verdict %}`: the verb of a verdict and its reason, linked to its row of the table."""
    word, look = verdict_words.WORDS[found.answer]
    chip = '<a class="chip {}" href="{}#row-{}"><b>{}</b> {}{}</a>'
    return markup(chip, look, _table(), found.row, word, verdict_words.short(found), _until(found))


def _until(found: Verdict) -> SafeString:
    """How long a wait lasts, or until when a replay is safe."""
    if found.until_us is None:
        return SafeString("")
    if found.answer == "wait":
        seconds = max(0, (found.until_us - now_us()) // 1_000_000)
        return markup(
            ' <span data-left="{}">{}</span>',
            str(seconds),
            elapsed(seconds * 1_000_000).replace(".0 s", " s"),
        )
    return markup(" until {}", moment(found.until_us, "until"))


@cache
def _table() -> str:
    return reverse("verdicts")


@register.filter
def verdict_look(found: Verdict) -> str:
    """The class that colours a verdict."""
    return verdict_words.WORDS[found.answer][1]


@register.filter
def verdict_word(found: Verdict) -> str:
    """The verb of a verdict."""
    return verdict_words.WORDS[found.answer][0]


@register.filter
def because(found: Verdict, tool: Tool | None) -> str:
    """Why, in one sentence, for a tool as it is declared."""
    return verdict_words.because(found, tool.tool_class if tool is not None else "")


@register.filter
def in_words(answer: str) -> str:
    """What somebody said of an effect: it happened, it did not happen …"""
    return resolve_page.ANSWERS[answer][1]


@register.filter
def changes(found: Verdict) -> str:
    """What would change a verdict; empty where nothing would."""
    words = verdict_words.changes(found)
    return "" if words == "Nothing." else words


@register.inclusion_tag("_untrusted.html")
def untrusted_excerpt(piece: Excerpt, label: str) -> dict[str, object]:
    """A labelled block of agent text of which only the beginning is at hand; says how much was cut away."""
    return {
        "label": label,
        "markup": _excerpt(piece),
        "hidden": untrusted.hidden_count(piece.text),
        "size": piece.octets,
    }


@register.simple_tag
def agent_value(piece: Excerpt) -> SafeString:
    """The value of an argument: agent text as it stands, in a box only where it has several lines."""
    look = "agent untrusted" if "\n" in piece.text or len(piece.text) > _ONE_LINE else "untrusted"
    return markup(
        '<code class="{}" hx-disable hx-ignore dir="ltr">{}</code>', look, _excerpt(piece)
    )


_ONE_LINE = 160


def _excerpt(piece: Excerpt) -> SafeString:
    shown = untrusted.render(piece.text, None)
    if not piece.cut:
        return shown
    rest = piece.octets - untrusted.byte_length(piece.text)
    return markup(
        '{}<span class="token is-quiet">[cut here: {} more bytes]</span>', shown, f"{rest:,}"
    )
