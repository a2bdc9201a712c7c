"""Signed webhooks: ids of what happened, sent to a channel's URL."""

import hashlib
import hmac
import time
from typing import Final

import orjson

from notifications import outbound_http
from notifications.channels import derive_webhook_secret
from notifications.message_text import OutgoingMessage, build_call_names
from notifications.models import NotificationChannel

SIGNATURE: Final = "Gatebook-Signature"


def send_webhook(channel: NotificationChannel, message: OutgoingMessage) -> None:
    """Send ids, keys and a version only; receivers read details with own permissions."""
    (story,) = message.stories
    body: dict[str, object] = {"id": story.key, "event": story.topic}
    if story.gate is not None:
        body |= {"gate": str(story.gate.id), "version": story.gate.version}
        body |= build_call_names(story.gate.effect)
    if story.telling is not None:
        body |= story.telling.ids
    if story.entry is not None:
        body["position"] = story.entry.position
    text = orjson.dumps(body)
    headers = {
        SIGNATURE: sign_webhook(derive_webhook_secret(channel.id), text, int(time.time())),
        "Gatebook-Notification": story.key,
    }
    outbound_http.post_webhook(channel.target, text, headers)


def sign_webhook(secret: str, body: bytes, at_s: int) -> str:
    """Sign a webhook: `t=<seconds>,v1=<hex>`, HMAC-SHA256 over `<seconds>.<body>`.

    Receivers refuse old seconds.
    """
    digest = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={digest}"
