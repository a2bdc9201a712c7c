"""Send notifications by e-mail and Slack-compatible chat, or as webhooks."""

import hashlib

import orjson
from django.conf import settings
from django.core.mail import EmailMessage

from notifications import outbound_http, webhooks
from notifications.message_text import OutgoingMessage, build_headline, build_lines
from notifications.models import NotificationChannel


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
        "text": build_slack_text(message),
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
    return "\n\n".join(paragraphs).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
