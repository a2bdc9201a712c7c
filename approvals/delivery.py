"""Write and send notifications: e-mail, Slack-compatible chat, signed webhook.

Texts come from columns, never from arguments: agent, tool, target, risk, deadline and a link.
Following the link decides nothing: it opens a page.
"""

import hashlib
import hmac
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import orjson
from django.conf import settings
from django.core.mail import EmailMessage

from approvals import outside
from approvals.channels import secret_of
from approvals.models import Gate
from approvals.models_notices import NoticeChannel
from journal.models import Entry
from journal.untrusted import pieces
from ledger import declared

SIGNATURE: Final = "Gatebook-Signature"
_STATUS_TEXTS: Final = {
    "approved": "was approved",
    "used": "was approved and used by the agent",
    "denied": "was denied",
    "denied_final": "was denied for the rest of the session",
    "returned": "was returned for changes",
    "expired": "expired without a decision",
    "lapsed": "was approved but not used in time",
    "revoked": "was revoked",
    "cancelled": "was withdrawn",
    "pending": "needs approval",
}
_DIGEST_HEADLINES: Final = {
    "gate.requested": "requests need approval",
    "session.stuck": "alerts of stuck sessions",
    "session.recovered": "alerts resolved",
    "alert.raised": "saved queries have new matches",
}


_LIVE_MARKUP: Final = re.compile(
    r"(?<=[^\W_])(?:[.。．｡](?=[\w/\[])|:(?=\S))|@|[*`~]|(?<!\w)_|_(?!\w)|\](?=\()"
)
_DEFANGED: Final = {"@": "[at]", "]": "] "}


@dataclass(frozen=True, slots=True)
class Telling:
    """Content of a notification: headline, facts by line, page, webhook ids."""

    headline: str
    facts: list[str]
    path: str
    ids: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Story:
    """One item of a notification: a gate with its current status, or an entry."""

    topic: str
    key: str
    gate: Gate | None = None
    status: str = ""
    entry: Entry | None = None
    telling: Telling | None = None


# Returns None if the problem has ended, so that nothing is sent.
Teller = Callable[[Entry], Telling | None]
tellers: dict[str, Teller] = {}  # by topic; apps of higher layers register theirs at startup


@dataclass(frozen=True, slots=True)
class Message:
    """A message to one channel with one or more items."""

    topic: str
    stories: list[Story]

    @property
    def key(self) -> str:
        """Deduplication key: the same for the same items, different if an item is new."""
        keys = sorted(story.key for story in self.stories)
        return (
            keys[0]
            if len(keys) == 1
            else f"digest:{hashlib.sha256(' '.join(keys).encode()).hexdigest()[:32]}"
        )


def mail_becomes_files() -> bool:
    """Return True if no mail server is configured."""
    backend: str = settings.EMAIL_BACKEND
    return backend.endswith("filebased.EmailBackend")


def deliver(channel: NoticeChannel, message: Message) -> None:
    """Send `message` to a channel. Raises on any failure."""
    if channel.kind == "email":
        _send_email(channel, message)
    elif channel.kind == "slack":
        _send_slack(channel, message)
    else:
        _send_webhook(channel, message)


def headline(message: Message) -> str:
    """Return the headline of a message."""
    first = message.stories[0]
    if len(message.stories) > 1:
        return f"{len(message.stories)} {_DIGEST_HEADLINES[first.topic]}"
    if first.telling is not None:
        return first.telling.headline
    if first.gate is None:
        return "This is a test"
    if first.topic == "gate.unseen":
        return (
            f"{_gate_label(first.gate)}: half of its time has passed and "
            "no eligible reviewer has opened it"
        )
    return f"{_gate_label(first.gate)} {_STATUS_TEXTS[first.status]}"


def lines(story: Story) -> list[str]:
    """Return the facts of an item, one a line, and the link."""
    gate, telling = story.gate, story.telling
    if telling is not None:
        return [*telling.facts, _absolute_url(telling.path)]
    if gate is None:
        return [_absolute_url("/audit/")]
    place = [
        gate.repository_name,
        gate.effect.ref_class and f"a {gate.effect.ref_class} ref",
        gate.effect.environment,
    ]
    facts = [
        f"{inert(gate.agent.name)} requests to use {tool_of(gate.project_id, gate.tool)}"
        + "".join(f", {inert(word)}" for word in place if word)
        + ".",
        f"Risk {gate.risk}, {gate.reversibility}.",
    ]
    if story.status == "pending":
        facts.append(f"Decide by {moment(gate.decide_by_us)}; then it expires.")
    return [*facts, _absolute_url(f"/approvals/{gate.id}/")]


def _gate_label(gate: Gate) -> str:
    tool = tool_of(gate.project_id, gate.tool)
    return f"{gate.risk}: {tool} by {inert(gate.agent.name)} (g_{gate.opened_position})"


def shown(text: str) -> str:
    """Return agent text on one line, with hidden characters as tokens."""
    return "".join(piece.shown or piece.raw for piece in pieces(text[:120], one_line=True))


def inert(text: str) -> str:
    """Defang agent text: no program makes links, addresses or markup of it.

    Defanged as usual: evil[.]example, https[:]//evil[.]example, someone[at]evil[.]example.
    """
    return _LIVE_MARKUP.sub(lambda sign: _DEFANGED.get(sign[0], f"[{sign[0]}]"), shown(text))


def tool_of(project: UUID, name: str) -> str:
    """Return the name of a tool: verbatim if declared, otherwise inert."""
    return shown(name) if declared.tool(project, name) is not declared.UNDECLARED else inert(name)


def moment(us: int) -> str:
    """Format microseconds as 23 November 2026 04:14 UTC."""
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%d %B %Y %H:%M UTC")


def _absolute_url(path: str) -> str:
    return f"{settings.GATEBOOK_URL}{path}"


def _send_email(channel: NoticeChannel, message: Message) -> None:
    identity = hashlib.sha256(f"{channel.id.hex} {message.key}".encode()).hexdigest()[:32]
    parts = ["\n".join(lines(story)) for story in message.stories]
    if len(parts) > 1:
        parts = [
            f"{headline(Message(s.topic, [s]))}\n{part}"
            for s, part in zip(message.stories, parts, strict=True)
        ]
    EmailMessage(
        subject=f"Gatebook: {headline(message)}"[:200],
        body="\n\n".join(parts) + "\n",
        to=[channel.target],
        headers={"Message-ID": f"<{identity}@gatebook>", "Gatebook-Notice": message.key},
    ).send()


def _send_slack(channel: NoticeChannel, message: Message) -> None:
    body = {
        "text": slack_text(message),
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
    }
    outside.post(channel.target, orjson.dumps(body), {"Gatebook-Notice": message.key})


def slack_text(message: Message) -> str:
    """Return the text for a Slack-compatible channel, with all markup escaped."""
    paragraphs = [headline(message), *("\n".join(lines(story)) for story in message.stories)]
    return "\n\n".join(paragraphs).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _send_webhook(channel: NoticeChannel, message: Message) -> None:
    """Send ids and a version only.

    The receiver requests details with its own permissions.
    """
    (story,) = message.stories
    body: dict[str, object] = {"id": story.key, "event": story.topic}
    if story.gate is not None:
        body |= {"gate": str(story.gate.id), "version": story.gate.version}
    if story.telling is not None:
        body |= story.telling.ids
    if story.entry is not None:
        body["position"] = story.entry.position
    text = orjson.dumps(body)
    headers = {
        SIGNATURE: signature(secret_of(channel.id), text, int(time.time())),
        "Gatebook-Notice": story.key,
    }
    outside.post(channel.target, text, headers)


def signature(secret: str, body: bytes, at_s: int) -> str:
    """Sign a webhook: `t=<seconds>,v1=<hex>`, HMAC-SHA256 over `<seconds>.<body>`.

    Receivers refuse old seconds.
    """
    digest = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={digest}"
