"""Template tags of all pages: agents' text, states, moments, sizes, digests.

Uses no models: `state` reads the attributes of an effect.
"""

from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Final, Protocol

from django import template
from django.conf import settings
from django.urls import reverse
from django.utils.safestring import SafeString

from db.clock import now_us
from web import untrusted_text as agents_text
from web.untrusted_text import format_markup

register = template.Library()

# state -> (class, shape in the sprite)
STATES: Final[dict[str, tuple[str, str]]] = {
    "planned": ("is-planned", "planned"),
    "awaiting approval": ("is-awaiting", "awaiting"),
    "dispatched": ("is-dispatched", "dispatched"),
    "acknowledged": ("is-ack", "ack"),
    "failed": ("is-failed", "failed"),
    "unknown": ("is-unknown", "unknown"),
    "compensated": ("is-compensated", "compensated"),
    "superseded": ("is-superseded", "superseded"),
}
# status of sessions, tasks and items -> (class, shape in the sprite)
STATUSES: Final[dict[str, tuple[str, str]]] = {
    "running": ("is-dispatched", "running"),
    "end not reported": ("is-planned", "dash"),
    "worker gone": ("is-unknown", "warn"),
    "no worker": ("is-awaiting", "pause"),
    "not started": ("is-planned", "planned"),
    "waiting": ("is-awaiting", "awaiting"),
    "suspended": ("is-planned", "pause"),
    "completed": ("is-ack", "ack"),
    "done": ("is-ack", "ack"),
    "failed": ("is-failed", "failed"),
    "cancelled": ("is-superseded", "superseded"),
    "pending": ("is-planned", "planned"),
    "blocked": ("is-awaiting", "stop"),
}
OUTCOMES: Final[dict[str, tuple[str, str]]] = {
    "ok": ("is-ack", "tick"),
    "error": ("is-failed", "failed"),
    "unknown": ("is-unknown", "unknown"),
}


class EffectLike(Protocol):
    """The attributes of an effect that `state` reads."""

    state: str
    permission: str
    outcome: str
    deadline_us: int | None


def derive_shown_state(effect: EffectLike, now: int) -> str:
    """Return the shown state at `now` (microseconds), which may be derived."""
    if effect.state == "planned" and effect.permission == "pending":
        return "awaiting approval"
    if effect.state == "dispatched" and effect.deadline_us is not None and effect.deadline_us < now:
        return "unknown"
    if effect.state in ("acknowledged", "failed") and effect.outcome == "unknown":
        return "unknown"
    return effect.state


def state_style(word: str, outcome: str, permission: str = "") -> tuple[str, str]:
    """Return class and shape of a state; errors are shown as no success."""
    if word == "acknowledged" and permission == "bypassed":
        return "is-failed", "warn"
    if word == "acknowledged" and outcome == "error":
        return "is-failed", "failed"
    return STATES.get(word, ("is-planned", "dash"))


def _state(word: str, style: tuple[str, str]) -> SafeString:
    return format_markup('<span class="state {}">{}{}</span>', style[0], mark(style[1]), word)


# Cached, because a page repeats the same few labels a hundred times.
@register.simple_tag
@lru_cache(maxsize=64)
def mark(shape: str) -> SafeString:
    """Render a shape of the sprite, next to a label with the same meaning."""
    return format_markup('<svg class="mark" aria-hidden="true"><use href="#{}"/></svg>', shape)


@register.simple_tag
def state(effect: EffectLike, *, detailed: bool = False) -> SafeString:
    """`{% state effect %}`: shape, label and colour of the shown state."""
    return render_state(
        derive_shown_state(effect, now_us()), effect.outcome, effect.permission, detailed=detailed
    )


@register.simple_tag
@lru_cache(maxsize=64)
def state_word(word: str) -> SafeString:
    """Render a state given by its label."""
    return _state(word, STATES.get(word, ("is-planned", "dash")))


@register.simple_tag
@lru_cache(maxsize=256)
def render_state(
    word: str, outcome: str, permission: str = "", *, detailed: bool = True
) -> SafeString:
    """Render a state with its outcome next to it (`detailed`); an error has its own shape."""
    shown = _state(word, state_style(word, outcome, permission))
    if not detailed or not outcome or word in ("unknown", "failed"):
        return shown
    return format_markup("{} {}", shown, outcome)


@register.simple_tag
@lru_cache(maxsize=64)
def status(word: str) -> SafeString:
    """Render the status of a session, task or item with shape and colour."""
    return _state(word, STATUSES.get(word, ("is-planned", "dash")))


@register.simple_tag
@lru_cache(maxsize=64)
def outcome(word: str) -> SafeString:
    """Render an outcome with shape and colour; nothing for an empty one."""
    return _state(word, OUTCOMES.get(word, ("is-planned", "dash"))) if word else SafeString("")


@register.simple_tag
@cache
def page_path(name: str) -> str:
    """`{% page_path "search" %}`: like the url tag, but resolved once for all pages."""
    return reverse(name, urlconf=settings.ROOT_URLCONF)


@register.inclusion_tag("_untrusted.html")
def untrusted(
    text: object, label: str = "from agent", limit: int | None = agents_text.MAX_CHARACTERS
) -> dict[str, object]:
    """`{% untrusted text %}`: a labelled block of agents' text with its warnings.

    `label` comes from us, never from the agent. `limit` is in characters; None shows everything.
    """
    words = "" if text is None else str(text)
    prose = agents_text.is_prose(words)
    return {
        "label": label,
        "markup": agents_text.render_untrusted(words, limit, prose=prose),
        "hidden": agents_text.count_hidden_characters(words, prose=prose),
        "size": agents_text.utf8_length(words),
    }


@register.filter
def untrusted_line(text: object, limit: int = 120, *, prose: bool = False) -> SafeString:
    """`{{ text|untrusted_line:120 }}`: agents' text on one line, inert."""
    words = "" if text is None else str(text)
    line = agents_text.render_untrusted_line(words, limit, prose=prose)
    return format_markup('<span class="untrusted" hx-disable hx-ignore dir="ltr">{}</span>', line)


@register.filter
def summary_line(text: str, limit: int = 120) -> SafeString:
    """`{{ gist|summary_line:120 }}`: a call on one line, with plain no-break spaces.

    A summary joins several arguments; the call's own page shows each by what it is.
    """
    return untrusted_line(text, limit, prose=True)


@register.filter
def field_query(field: str, value: str) -> str:
    """`{{ field|field_query:value }}`: the search query of a declared field with this value."""
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'field.{field}:"{quoted}"'


_MIDDLE: Final = (
    '<span class="mid untrusted" hx-disable hx-ignore dir="ltr" title="{}">'
    "<span>{}</span><span>{}</span></span>"
)


@register.filter
def person_text(text: str) -> SafeString:
    """`{{ reason|person_text }}`: a person's text, with hidden characters shown."""
    return agents_text.render_untrusted(text, None, prose=agents_text.is_prose(text))


@register.filter
def hidden_characters(text: object) -> int:
    """Count the hidden characters of agents' text."""
    return agents_text.count_hidden_characters(str(text or ""))


@register.filter
def moment(when: int | datetime | None, form: str = "") -> SafeString:
    """`{{ us|moment }}`: a moment (microseconds or datetime) in UTC, or a dash.

    Form "": date and time in seconds; "ms": in milliseconds; "time": the time in milliseconds
    without date; "minute": the same in minutes; "day": the date; "zone": with the name of its
    zone; "until": for use after a preposition, with the clock time next to an age. The page script
    converts it to the reader's zone or to an age, as they chose.
    """
    if when is None or when == "":
        return format_markup('<span class="quiet">{}</span>', "—")
    at = when if isinstance(when, datetime) else datetime.fromtimestamp(when / 1_000_000, UTC)
    at = at.astimezone(UTC)
    iso = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    day, clock = iso[:10], iso[11:19] if form in ("", "zone", "until") else iso[11:23]
    clock += " UTC" if form == "zone" else ""
    if form in ("time", "minute"):
        return format_markup(
            '<time datetime="{}" data-form="{}" title="{} UTC">{}</time>',
            iso,
            form,
            f"{day} {clock}",
            clock if form == "time" else clock[:5],
        )
    if form == "day":
        return format_markup('<time datetime="{}" data-form="day">{}</time>', iso, day)
    return format_markup(
        '<time datetime="{}" data-form="{}"><span class="day">{}</span> {}</time>',
        iso,
        form or "s",
        day,
        clock,
    )


@register.filter
def elapsed(microseconds: int | None) -> str:
    """Format a duration: 850 ms, 4.2 s, 12 min 3 s, 5 h 2 min, 3 d 4 h."""
    if microseconds is None:
        return "—"
    seconds = microseconds / 1_000_000
    if seconds < 1:
        return f"{microseconds / 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    total = int(seconds)
    for size, word, smaller, small_word in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if total >= size:
            remainder = total % size // smaller
            return (
                f"{total // size} {word} {remainder} {small_word}"
                if remainder
                else f"{total // size} {word}"
            )
    return f"{total} s"


@register.filter
def seconds(count: int | None) -> str:
    """Format a whole number of seconds as a duration."""
    return "—" if count is None else elapsed(count * 1_000_000).replace(".0 s", " s")


@register.filter
def size(count: int | None) -> str:
    """Format a size in bytes: 812 B, 6.1 KiB, 3.4 MiB."""
    if count is None:
        return "—"
    if count < 1024:
        return f"{count} B"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        amount /= 1024
        if amount < 1024 or unit == "TiB":
            break
    return f"{amount:.1f} {unit}"


@register.filter
def grouped(number: int | None) -> str:
    """Group digits in threes with a narrow no-break space: 48 211."""
    return "—" if number is None else f"{number:,}".replace(",", "\u202f")


@register.filter
def digest(value: str | bytes | memoryview | None) -> SafeString:
    """Shorten a digest to eight characters; the tooltip has all of it."""
    if not value:
        return format_markup('<span class="quiet">{}</span>', "—")
    value_text = value if isinstance(value, str) else bytes(value).hex()
    bare = value_text.rpartition(":")[2]
    return format_markup('<code title="{}">{}</code>', value_text, f"{bare[:4]}…{bare[-4:]}")
