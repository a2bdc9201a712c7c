"""Signed webhooks: ids of what happened, sent to a channel's URL."""

import hashlib
import hmac
import time
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import orjson
from django.conf import settings

from notifications import outbound_http
from notifications.channels import derive_webhook_secret
from notifications.message_text import NotificationItem, OutgoingMessage, build_call_names
from notifications.models import NotificationChannel

SIGNATURE: Final = "Gatebook-Signature"
CLOUDEVENTS_JSON: Final = "application/cloudevents+json"
TYPE_PREFIX: Final = "dev.gatebook."
SUBJECTS: Final = ("gate", "effect", "session")


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
    is_cloudevent = channel.body_form == "cloudevents"
    text = orjson.dumps(
        build_cloudevent(channel.project_id, body, _find_moment_us(story))
        if is_cloudevent
        else body
    )
    headers = {
        SIGNATURE: sign_webhook(derive_webhook_secret(channel.id), text, int(time.time())),
        "Gatebook-Notification": story.key,
        "Content-Type": CLOUDEVENTS_JSON if is_cloudevent else "application/json",
    }
    outbound_http.post_webhook(channel.target, text, headers)


def build_cloudevent(
    project: UUID, body: dict[str, object], moment_us: int | None
) -> dict[str, object]:
    """Build the CloudEvent of a webhook: the plain body is its data, without id and event.

    `subject` is what the event is about: the gate, effect or session that the body names first.
    """
    data = {name: value for name, value in body.items() if name not in ("id", "event")}
    event: dict[str, object] = {
        "specversion": "1.0",
        "id": body["id"],
        "source": f"{settings.GATEBOOK_URL}/projects/{project}",
        "type": f"{TYPE_PREFIX}{body['event']}",
        "datacontenttype": "application/json",
        "data": data,
    }
    subject = next((f"{name}/{data[name]}" for name in SUBJECTS if data.get(name)), None)
    event |= {"subject": subject} if subject else {}
    if moment_us is not None:
        moment = datetime.fromtimestamp(moment_us / 1_000_000, UTC)
        event["time"] = moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return event


def _find_moment_us(story: NotificationItem) -> int | None:
    """Return when what a notification is about was recorded, where it is known."""
    if story.entry is not None:
        return story.entry.received_us
    gate = story.gate
    if gate is None:
        return None
    if story.topic == "gate.requested":
        return gate.requested_at_us
    if story.topic == "gate.expired":
        return gate.decided_at_us or gate.decide_by_us
    return gate.decided_at_us


def sign_webhook(secret: str, body: bytes, at_s: int) -> str:
    """Sign a webhook: `t=<seconds>,v1=<hex>`, HMAC-SHA256 over `<seconds>.<body>`.

    Receivers refuse old seconds.
    """
    digest = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={digest}"
