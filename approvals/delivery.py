"""How a notice is put into words and handed over: by e-mail, to a Slack-compatible address, to a program.

Words are built here of columns, never of arguments: agent, tool, place, risk, deadline, and a link. Nothing decides by
being followed: the link opens a page.
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
_ENDED: Final = {
    "approved": "was approved",
    "used": "was approved, and the agent has used it",
    "denied": "was denied",
    "denied_final": "was denied for the rest of the session",
    "returned": "was returned to the agent",
    "expired": "expired: nobody ruled in time",
    "lapsed": "was approved, and not used in time",
    "revoked": "was revoked",
    "cancelled": "was withdrawn",
    "pending": "waits for a ruling",
}
_TOGETHER: Final = {
    "gate.requested": "requests wait for a ruling",
    "session.stuck": "alerts of what is stuck",
    "session.recovered": "alerts are over",
    "alert.raised": "saved queries have new matches",
}


_LIVE: Final = re.compile(r"(?<=[^\W_])(?:[.。．｡](?=[\w/\[])|:(?=\S))|@|[*`~]|(?<!\w)_|_(?!\w)|\](?=\()")
_SPELLED: Final = {"@": "[at]", "]": "] "}


@dataclass(frozen=True, slots=True)
class Telling:
    """What a room above says of an entry: one line, facts a line each, the page to look at, ids for a program."""

    headline: str
    facts: list[str]
    path: str
    ids: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Story:
    """One thing to tell: of a gate and its status as of now, or of an entry, in the words of a room above if it has."""

    topic: str
    key: str
    gate: Gate | None = None
    status: str = ""
    entry: Entry | None = None
    telling: Telling | None = None


Teller = Callable[[Entry], Telling | None]  # None where it is over, so that there is nothing to tell
tellers: dict[str, Teller] = {}  # by topic; a room above adds its own when it is made ready


@dataclass(frozen=True, slots=True)
class Message:
    """What goes out at once."""

    topic: str
    stories: list[Story]

    @property
    def key(self) -> str:
        """The same whenever the same stories are sent, and another as soon as one of them is new to the receiver."""
        keys = sorted(story.key for story in self.stories)
        return keys[0] if len(keys) == 1 else f"digest:{hashlib.sha256(' '.join(keys).encode()).hexdigest()[:32]}"


def mail_becomes_files() -> bool:
    """Whether no mail server is configured."""
    backend: str = settings.EMAIL_BACKEND
    return backend.endswith("filebased.EmailBackend")


def deliver(channel: NoticeChannel, message: Message) -> None:
    """Hand `message` over. Raises whatever keeps it from arriving."""
    if channel.kind == "email":
        _email(channel, message)
    elif channel.kind == "slack":
        _slack(channel, message)
    else:
        _webhook(channel, message)


def headline(message: Message) -> str:
    """One line for all of a message."""
    first = message.stories[0]
    if len(message.stories) > 1:
        return f"{len(message.stories)} {_TOGETHER[first.topic]}"
    if first.telling is not None:
        return first.telling.headline
    if first.gate is None:
        return "This is a test"
    if first.topic == "gate.unseen":
        return f"{_named(first.gate)} waits, half of its time has passed, and nobody who may rule has opened it"
    return f"{_named(first.gate)} {_ENDED[first.status]}"


def lines(story: Story) -> list[str]:
    """What is known of it, one fact a line, and where to look."""
    gate, telling = story.gate, story.telling
    if telling is not None:
        return [*telling.facts, _link(telling.path)]
    if gate is None:
        return [_link("/audit/")]
    place = [gate.repository_name, gate.effect.ref_class and f"a {gate.effect.ref_class} ref", gate.effect.environment]
    facts = [
        f"{inert(gate.agent.name)} asks to use {tool_of(gate.project_id, gate.tool)}"
        + "".join(f", {inert(word)}" for word in place if word)
        + ".",
        f"Risk {gate.risk}, {gate.reversibility}.",
    ]
    if story.status == "pending":
        facts.append(f"To be decided by {moment(gate.decide_by_us)}, or it expires.")
    return [*facts, _link(f"/approvals/{gate.id}/")]


def _named(gate: Gate) -> str:
    tool = tool_of(gate.project_id, gate.tool)
    return f"{gate.risk}: {tool} by {inert(gate.agent.name)} (g_{gate.opened_position})"


def shown(text: str) -> str:
    """Agents' words with nothing hidden in them, on one line."""
    return "".join(piece.shown or piece.raw for piece in pieces(text[:120], one_line=True))


def inert(text: str) -> str:
    """`shown` for agents' words: nothing that a mail or chat program would make a link, an address or markup of.

    As the trade writes it: evil[.]example, https[:]//evil[.]example, someone[at]evil[.]example.
    """
    return _LIVE.sub(lambda sign: _SPELLED.get(sign[0], f"[{sign[0]}]"), shown(text))


def tool_of(project: UUID, name: str) -> str:
    """The name of a tool: as it stands where the operator declared it, else inert as any other word of an agent."""
    return shown(name) if declared.tool(project, name) is not declared.UNDECLARED else inert(name)


def moment(us: int) -> str:
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%d %B %Y %H:%M UTC")


def _link(path: str) -> str:
    return f"{settings.GATEBOOK_URL}{path}"


def _email(channel: NoticeChannel, message: Message) -> None:
    identity = hashlib.sha256(f"{channel.id.hex} {message.key}".encode()).hexdigest()[:32]
    parts = ["\n".join(lines(story)) for story in message.stories]
    if len(parts) > 1:
        parts = [f"{headline(Message(s.topic, [s]))}\n{part}" for s, part in zip(message.stories, parts, strict=True)]
    EmailMessage(
        subject=f"Gatebook: {headline(message)}"[:200],
        body="\n\n".join(parts) + "\n",
        to=[channel.target],
        headers={"Message-ID": f"<{identity}@gatebook>", "Gatebook-Notice": message.key},
    ).send()


def _slack(channel: NoticeChannel, message: Message) -> None:
    body = {"text": slack_text(message), "mrkdwn": False, "unfurl_links": False, "unfurl_media": False}
    outside.post(channel.target, orjson.dumps(body), {"Gatebook-Notice": message.key})


def slack_text(message: Message) -> str:
    """What a Slack-compatible channel gets: no markup of anybody's."""
    told = [headline(message), *("\n".join(lines(story)) for story in message.stories)]
    return "\n\n".join(told).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _webhook(channel: NoticeChannel, message: Message) -> None:
    """A hint: ids and a version. The receiver asks Gatebook for what it may know."""
    (story,) = message.stories
    body: dict[str, object] = {"id": story.key, "event": story.topic}
    if story.gate is not None:
        body |= {"gate": str(story.gate.id), "version": story.gate.version}
    if story.telling is not None:
        body |= story.telling.ids
    if story.entry is not None:
        body["position"] = story.entry.position
    text = orjson.dumps(body)
    headers = {SIGNATURE: signature(secret_of(channel.id), text, int(time.time())), "Gatebook-Notice": story.key}
    outside.post(channel.target, text, headers)


def signature(secret: str, body: bytes, at_s: int) -> str:
    """`t=<seconds>,v1=<hex>`: HMAC-SHA256 under `secret` over `<seconds>.<body>`. A receiver refuses old seconds."""
    told = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={told}"
