"""Send notifications by e-mail and Slack-compatible chat, or as webhooks."""

import hashlib
from typing import Final
from urllib.parse import quote

import orjson
from django.conf import settings
from django.core.mail import EmailMessage

from notifications import outbound_http, webhooks
from notifications.message_text import OutgoingMessage, build_headline, build_lines
from notifications.models import NotificationChannel

# What Slack accepts: characters of a header and of a section, and blocks of a message.
HEADER_CHARACTERS: Final = 150
SECTION_CHARACTERS: Final = 3000
SLACK_BLOCKS: Final = 50


def is_mail_written_to_files() -> bool:
    """Return True if no mail server is configured."""
    backend: str = settings.EMAIL_BACKEND
    return backend.endswith("filebased.EmailBackend")


def deliver_message(channel: NotificationChannel, message: OutgoingMessage) -> None:
    """Send `message` to a channel. Raises on any failure."""
    if channel.kind == "email":
        _send_email(channel, message)
    elif channel.kind == "slack":
        _send_slack(channel, message)
    else:
        webhooks.send_webhook(channel, message)


def _send_email(channel: NotificationChannel, message: OutgoingMessage) -> None:
    identity = hashlib.sha256(f"{channel.id.hex} {message.key}".encode()).hexdigest()[:32]
    parts = ["\n".join(build_lines(story)) for story in message.stories]
    if len(parts) > 1:
        parts = [
            f"{build_headline(OutgoingMessage(s.topic, [s]))}\n{part}"
            for s, part in zip(message.stories, parts, strict=True)
        ]
    EmailMessage(
        subject=f"Gatebook: {build_headline(message)}"[:200],
        body="\n\n".join(parts) + "\n",
        to=[channel.target],
        headers={"Message-ID": f"<{identity}@gatebook>", "Gatebook-Notification": message.key},
    ).send()


def _send_slack(channel: NotificationChannel, message: OutgoingMessage) -> None:
    body = {
        # Slack shows the blocks, and the text where there is no place for them. Other chats
        # that take its format know the text only.
        "text": build_slack_text(message),
        "blocks": build_slack_blocks(message),
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
    }
    outbound_http.post_webhook(
        channel.target, orjson.dumps(body), {"Gatebook-Notification": message.key}
    )


def build_slack_text(message: OutgoingMessage) -> str:
    """Return the text for a Slack-compatible channel, with all markup escaped."""
    paragraphs = [
        build_headline(message),
        *("\n".join(build_lines(story)) for story in message.stories),
    ]
    return _escape_slack("\n\n".join(paragraphs))


def build_slack_blocks(message: OutgoingMessage) -> list[dict[str, object]]:
    """Return the blocks for Slack: the headline, and the facts and the page of each item.

    Agents' words stand in plain text only, in which Slack makes no links, mentions or emoji. The
    link goes to a page of Gatebook; nothing can be decided in the chat.
    """
    blocks: list[dict[str, object]] = [
        {"type": "header", "text": _plain_text(build_headline(message), HEADER_CHARACTERS)}
    ]
    for story in message.stories:
        *facts, address = build_lines(story)
        if len(blocks) + (2 if facts else 1) > SLACK_BLOCKS:
            break  # the text has all items
        if facts:
            text = _plain_text("\n".join(facts), SECTION_CHARACTERS)
            blocks.append({"type": "section", "text": text})
        link = f"<{quote(address, safe=':/?&=#%[]')}|Open in Gatebook>"
        blocks.append(
            {"type": "context", "elements": [{"type": "mrkdwn", "text": link, "verbatim": True}]}
        )
    return blocks


def _plain_text(text: str, limit: int) -> dict[str, object]:
    """Return a text object of at most `limit` characters, without markup and emoji."""
    shown = _escape_slack(text)
    kept = text[:limit]
    while len(shown) > limit:  # escaping makes a text longer
        kept = kept[:-1]
        shown = f"{_escape_slack(kept)}…"
    return {"type": "plain_text", "text": shown, "emoji": False}


def _escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
