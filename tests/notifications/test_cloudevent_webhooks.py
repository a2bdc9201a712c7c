"""Webhooks in the form of CloudEvents: the same facts and the same signature in an envelope."""

import hashlib
import hmac
import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from approvals.models import Gate
from db.errors import ChangeRefused
from journal.models import Entry
from notifications import channels, notifications, outbound_http, webhooks
from notifications.models import NotificationChannel
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.notification_helpers import (
    _outside,
    add_full_channel,
    posted,
    risky,
    tick,
)
from tests.pages.people import Organization

__all__ = ["_outside", "add_full_channel", "posted"]
ENVELOPE = {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data"}


@pytest.fixture
def channel(add_full_channel: Callable[..., NotificationChannel]) -> NotificationChannel:
    """A webhook that receives CloudEvents."""
    return add_full_channel("webhook", body_form="cloudevents")


def test_requests_and_rulings_are_cloudevents(
    inbox: InboxScenario, channel: NotificationChannel, posted: list[Any]
) -> None:
    gate = risky(inbox, "low")
    tick()
    inbox.answer(gate, "reviewer")
    tick()
    (_, requested, headers), (_, ruled, _) = posted
    assert headers["Content-Type"] == "application/cloudevents+json"
    assert headers["Gatebook-Notification"] == requested["id"]
    assert requested.keys() == ENVELOPE
    assert requested["specversion"] == "1.0"
    assert requested["id"] == f"gate.requested:{gate.id.hex}"
    assert requested["type"] == "dev.gatebook.gate.requested"
    assert requested["source"].endswith(f"/projects/{gate.project_id}")
    assert requested["subject"] == f"gate/{gate.id}"
    assert requested["data"]["gate"] == str(gate.id)
    assert not {"id", "event"} & requested["data"].keys()
    stored = Gate.objects.get(id=gate.id)
    assert (ruled["type"], ruled["data"]["version"]) == (
        "dev.gatebook.gate.resolved",
        stored.version,
    )
    for event, moment_us in (
        (requested, stored.requested_at_us),
        (ruled, stored.decided_at_us),
    ):
        moment = datetime.fromisoformat(event["time"])
        assert moment.timestamp() * 1_000_000 == pytest.approx(moment_us, abs=1)


def test_violations_are_cloudevents(
    inbox: InboxScenario, channel: NotificationChannel, posted: list[Any]
) -> None:
    inbox.rules()
    effect = inbox.plan()
    inbox.agent.report(
        [
            {
                "id": "ran",
                "kind": "effect.acknowledged",
                "session": "s-1",
                "effect_key": "e-1",
                "outcome": "ok",
            }
        ]
    )
    stored = inbox.effect(effect)
    assert stored.permission == "bypassed"
    tick()
    violation = Entry.objects.get(kind="integrity.violation", effect=stored.id)
    (event,) = (body for _, body, _ in posted if body["type"] == "dev.gatebook.integrity")
    assert event["subject"] == f"effect/{stored.id}"
    assert event["data"]["position"] == violation.position
    moment = datetime.fromisoformat(event["time"])
    assert moment.timestamp() * 1_000_000 == pytest.approx(violation.received_us, abs=1)


def test_the_signature_covers_the_bytes_that_are_sent(
    inbox: InboxScenario, channel: NotificationChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[bytes, dict[str, str]]] = []
    monkeypatch.setattr(
        outbound_http, "post_webhook", lambda _url, body, headers: sent.append((body, headers))
    )
    risky(inbox, "low")
    tick()
    ((body, headers),) = sent
    matched = re.fullmatch(r"t=(\d+),v1=([0-9a-f]{64})", headers[webhooks.SIGNATURE])
    assert matched is not None
    secret = channels.derive_webhook_secret(channel.id).encode()
    message = matched[1].encode() + b"." + body
    assert hmac.new(secret, message, hashlib.sha256).hexdigest() == matched[2]
    assert json.loads(body)["specversion"] == "1.0"


def test_a_test_notification_is_a_cloudevent(
    inbox: InboxScenario, channel: NotificationChannel, posted: list[Any]
) -> None:
    entry = Entry.objects.order_by("position").last()
    assert entry is not None
    notifications.write_test_notification(channel, entry.position)
    tick()
    ((_url, event, _headers),) = posted
    assert event["type"] == "dev.gatebook.test"
    assert event["data"] == {"position": entry.position}
    assert "subject" not in event


@pytest.mark.parametrize(
    ("kind", "target", "form"),
    [
        ("email", "team@example.org", "cloudevents"),
        ("slack", "https://hooks.example.org/", "cloudevents"),
        ("webhook", "https://hooks.example.org/", "xml"),
    ],
)
def test_only_webhooks_have_a_form(inbox: InboxScenario, kind: str, target: str, form: str) -> None:
    with pytest.raises(ChangeRefused, match="Only a webhook"):
        channels.add_channel(
            inbox.project, kind, target, inbox.user("administrator"), body_form=form
        )


def test_the_page_adds_a_webhook_for_cloudevents(organization: Organization) -> None:
    client = organization.client("administrator")
    sent = {
        "kind": "cloudevents",
        "target": "https://hooks.example.org/events",
        "minimum_risk": "low",
        "topics": ["requests", "rulings"],
    }
    page = client.post("/settings/notifications/", sent, follow=True).content.decode()
    channel = NotificationChannel.objects.get()
    assert (channel.kind, channel.body_form) == ("webhook", "cloudevents")
    assert channels.derive_webhook_secret(channel.id) in page
    assert "Webhook, CloudEvents" in page
