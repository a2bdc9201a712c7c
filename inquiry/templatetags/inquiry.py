"""What the reading pages say in one way: links to neighbouring pages, leave, sentences with times in them."""

from datetime import UTC, datetime
from functools import cache, lru_cache
from uuid import UUID

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from inquiry.bodies import Excerpt
from inquiry.sentences import Moment, Sentence
from inquiry.views.place import Place
from journal import untrusted
from journal.clock import now_us
from journal.templatetags.gatebook import STATES, mark, moment, outcome, shown_state, state_word, untrusted_line
from ledger.models import Effect

register = template.Library()
_NOBODY = UUID(int=0)


@register.simple_tag
def place_url(place: Place, **where: object) -> str:
    """`{% place_url place before=12 %}`: the query string with the same filters and another place in the pages."""
    return place.url(**where)


# A list says the same few words again and again: the names of tools, states, leave. They are marked up once.
@lru_cache(maxsize=4096)
def _name(text: str, limit: int) -> SafeString:
    return untrusted_line(text, limit)


@lru_cache(maxsize=64)
def _state(word: str) -> SafeString:
    return state_word(word)


@lru_cache(maxsize=64)
def _outcome(word: str) -> SafeString:
    return format_html(" {}", "ok" if word == "ok" else outcome(word))


@lru_cache(maxsize=256)
def _leave(leave: str, basis: str) -> SafeString:
    words = f"{leave}, {basis}" if basis else leave
    if leave == "bypassed":
        return format_html('<span class="flag is-danger">{}{}</span>', mark("warn"), words)
    return format_html("{}", words)


@register.filter
def name(text: str, limit: int = 40) -> SafeString:
    """`untrusted_line` for names that a list repeats."""
    return _name(text, limit)


@register.filter
def state_of(effect: Effect) -> SafeString:
    """The `state` tag for the rows of a list, with what came of it beside it: ok in plain, an error with its shape."""
    word = _state(shown_state(effect, now_us()))
    if effect.state != "acknowledged" or effect.outcome == "unknown":
        return word
    return word + _outcome(effect.outcome)


@cache
def _prefix(name: str) -> str:
    """Where the pages of a kind of object stand, without the object's id."""
    return reverse(name, args=[_NOBODY]).removesuffix(f"{_NOBODY}/")


@register.filter
def page_of(identity: UUID, name: str) -> str:
    """`{{ one.id|page_of:"effect" }}`: what the url tag says, without resolving each of the many links of a list."""
    return f"{_prefix(name)}{identity}/"


@register.filter
def target(effect: Effect) -> SafeString:
    """What an effect acts upon, in a row: repository@ref, a class that matters, environment."""
    parts = []
    if effect.repository is not None:
        parts.append(_name(effect.repository.name, 40))
    if effect.ref:
        parts.append(format_html('<span class="quiet">@</span>{}', _name(effect.ref, 40)))
    if effect.ref_class in ("production", "protected"):
        parts.append(format_html(" <b>{}</b>", effect.ref_class))
    if effect.environment:
        parts.append(format_html(" {}", _name(effect.environment, 20)))
    return format_html_join("", "{}", ((part,) for part in parts))


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
    return format_html('<time datetime="{}Z" data-form="time">{}</time>', at[:23], at[11:23])


@register.filter
def sentence(parts: Sentence) -> SafeString:
    """A sentence whose times are told in the reader's clock."""
    return format_html_join("", "{}", ((moment(part.us) if isinstance(part, Moment) else part,) for part in parts))


@register.filter
def state_class(word: str) -> str:
    """The class that gives a component the colour of a shown state."""
    return _look(word)[0]


@register.filter
def state_shape(word: str) -> str:
    """The shape of a shown state in the sprite."""
    return _look(word)[1]


def _look(word: str) -> tuple[str, str]:
    return ("is-awaiting", "decided") if word == "decided" else STATES.get(word, ("is-planned", "dash"))


@register.inclusion_tag("_untrusted.html")
def untrusted_excerpt(piece: Excerpt, label: str) -> dict[str, object]:
    """A labelled block of agent text of which only the beginning is at hand; says how much was cut away."""
    markup = untrusted.render(piece.text, None)
    if piece.cut:
        rest = piece.octets - untrusted.byte_length(piece.text)
        markup = format_html('{}<span class="token is-quiet">[cut here: {} more bytes]</span>', markup, f"{rest:,}")
    return {
        "label": label,
        "markup": markup,
        "hidden": untrusted.hidden_count(piece.text),
        "size": piece.octets,
    }


@register.simple_tag
def agent_value(piece: Excerpt) -> SafeString:
    """The value of an argument: agent text as it stands, in a box only where it has several lines."""
    markup = untrusted.render(piece.text, None)
    if piece.cut:
        rest = piece.octets - untrusted.byte_length(piece.text)
        markup = format_html('{}<span class="token is-quiet">[cut here: {} more bytes]</span>', markup, f"{rest:,}")
    look = "agent untrusted" if "\n" in piece.text or len(piece.text) > _ONE_LINE else "untrusted"
    return format_html('<code class="{}" hx-disable hx-ignore dir="ltr">{}</code>', look, markup)


_ONE_LINE = 160
