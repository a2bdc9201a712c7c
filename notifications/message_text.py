"""Texts of notifications: headlines and facts.

Texts come from columns, never from arguments: agent, tool, target, risk, deadline and a link.
Following the link decides nothing: it opens a page.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string

from approvals.models import Gate
from journal.models import Entry
from ledger.models import Effect
from ledger.tools import cache
from web.untrusted_text import split_untrusted

_STATUS_TEXTS: Final = {
    "approved": "was approved",
    "used": "was approved and used by the agent",
    "denied": "was denied",
    "denied_session": "was denied for the rest of the session",
    "changes_requested": "was returned for changes",
    "expired": "expired without a decision",
    "expired_unused": "was approved but not used in time",
    "revoked": "was revoked",
    "cancelled": "was withdrawn",
    "pending": "needs approval",
}
_DIGEST_HEADLINES: Final = {
    "gate.requested": "requests need approval",
    "gate.unseen": "requests are unopened at half of their time",
    "gate.resolved": "requests were decided",
    "gate.expired": "requests expired",
    "session.stuck": "notifications of stuck sessions",
    "session.recovered": "notifications of sessions no longer stuck",
    "alert.raised": "saved queries have new matches",
}


_LIVE_MARKUP: Final = re.compile(
    r"(?<=[^\W_])(?:[.。．｡](?=[\w/\[])|:(?=\S))|@|[*`~]|(?<!\w)_|_(?!\w)|\](?=\()"
)
_DEFANGED: Final = {"@": "[at]", "]": "] "}


@dataclass(frozen=True, slots=True)
class NotificationText:
    """Content of a notification: headline, facts by line, page, webhook ids."""

    headline: str
    facts: list[str]
    path: str
    ids: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class NotificationItem:
    """One item of a notification: a gate with its current status, or an entry."""

    topic: str
    key: str
    gate: Gate | None = None
    status: str = ""
    entry: Entry | None = None
    telling: NotificationText | None = None


# Returns None if the problem has ended, so that nothing is sent.
TextBuilder = Callable[[Entry], NotificationText | None]
_text_builders: dict[str, str] = {}


def register_text_builder(topic: str, builder: str) -> None:
    """Register the TextBuilder of a topic by its path; apps call it when they are ready."""
    _text_builders[topic] = builder


def load_text_builder(topic: str) -> TextBuilder | None:
    """Return the TextBuilder of a topic, if it has one."""
    builder = _text_builders.get(topic)
    return import_string(builder) if builder is not None else None


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to one channel with one or more items."""

    topic: str
    stories: list[NotificationItem]

    @property
    def key(self) -> str:
        """Deduplication key: the same for the same items, different if an item is new."""
        keys = sorted(story.key for story in self.stories)
        return (
            keys[0]
            if len(keys) == 1
            else f"digest:{hashlib.sha256(' '.join(keys).encode()).hexdigest()[:32]}"
        )


def build_headline(message: OutgoingMessage) -> str:
    """Return the headline of a message."""
    first = message.stories[0]
    if len({story.topic for story in message.stories}) > 1:
        return f"{len(message.stories)} notifications about one session"
    if len(message.stories) > 1:
        return f"{len(message.stories)} {_DIGEST_HEADLINES[first.topic]}"
    if first.telling is not None:
        return first.telling.headline
    if first.gate is None:
        return "This is a test"
    if first.topic == "gate.unseen":
        return (
            f"{build_gate_label(first.gate)}: half of its time has passed and "
            "no eligible reviewer has opened it"
        )
    if first.topic == "gate.addressed":
        return f"{build_gate_label(first.gate)} is assigned to you, or a comment on it mentions you"
    return f"{build_gate_label(first.gate)} {_STATUS_TEXTS[first.status]}"


def build_lines(story: NotificationItem) -> list[str]:
    """Return the facts of an item, one a line, and the link."""
    gate, telling = story.gate, story.telling
    if telling is not None:
        return [*telling.facts, _absolute_url(telling.path)]
    if gate is None:
        return [_absolute_url("/search/")]
    place = [
        gate.repository_name,
        gate.effect.ref_class and f"a {gate.effect.ref_class} ref",
        gate.effect.environment,
    ]
    facts = [
        f"{defang_text(gate.agent.name)} requests to use {tool_label(gate.project_id, gate.tool)}"
        + "".join(f", {defang_text(word)}" for word in place if word)
        + ".",
        f"Risk {gate.risk}, {gate.reversibility}.",
    ]
    if story.status == "pending":
        facts.append(f"Decide by {format_moment_utc(gate.decide_by_us)}; then it expires.")
    return [*facts, _absolute_url(f"/approvals/{gate.id}/")]


def build_gate_label(gate: Gate) -> str:
    """Return a request in one line: its risk, tool, agent and handle."""
    tool = tool_label(gate.project_id, gate.tool)
    return f"{gate.risk}: {tool} by {defang_text(gate.agent.name)} (g_{gate.opened_position})"


def build_call_names(effect: Effect) -> dict[str, str]:
    """Return by which names an agent finds the call of an effect again."""
    names = {
        "effect": str(effect.id),
        "session": str(effect.session_id),
        "session_key": effect.session.key,
        "effect_key": effect.effect_key,
        "call_id": effect.call_id,
    }
    return {name: value for name, value in names.items() if value}


def make_hidden_visible(text: str) -> str:
    """Return agent text on one line, with hidden characters as tokens."""
    return "".join(piece.shown or piece.raw for piece in split_untrusted(text[:120], one_line=True))


def defang_text(text: str) -> str:
    """Defang agent text: no program makes links, addresses or markup of it.

    Defanged as usual: evil[.]example, https[:]//evil[.]example, someone[at]evil[.]example.
    """
    return _LIVE_MARKUP.sub(
        lambda sign: _DEFANGED.get(sign[0], f"[{sign[0]}]"), make_hidden_visible(text)
    )


def tool_label(project: UUID, name: str) -> str:
    """Return the name of a tool: verbatim if declared, otherwise inert."""
    return (
        make_hidden_visible(name)
        if cache.load_tool(project, name) is not cache.UNDECLARED
        else defang_text(name)
    )


def format_moment_utc(us: int) -> str:
    """Format microseconds as 23 November 2026 04:14 UTC."""
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%d %B %Y %H:%M UTC")


def _absolute_url(path: str) -> str:
    return f"{settings.GATEBOOK_URL}{path}"
