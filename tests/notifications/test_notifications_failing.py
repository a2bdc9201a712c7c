"""Notifications when a step fails, is killed or runs twice, and which channels are valid."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from django.core import mail
from django.core.management import call_command
from django.db import transaction

from approvals.gates.statuses import US
from approvals.models import Gate
from db.clock import now_us
from db.errors import ChangeRefused
from journal import outbox
from journal.models import Outbox
from notifications import channels, delivery, notifications, outbound_http
from notifications.models import Notification, NotificationChannel
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.notification_helpers import (
    Killed,
    _outside,
    add_full_channel,
    posted,
    risky,
    tick,
)

__all__ = ["_outside", "add_full_channel", "posted"]


def test_a_failure_is_kept_tried_again_and_takes_no_gate_with_it(
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_full_channel("webhook")

    def fail_delivery(*_arguments: Any) -> None:
        raise outbound_http.DeliveryFailed("hooks.example.org answered 500.")

    monkeypatch.setattr(outbound_http, "post_webhook", fail_delivery)
    gate = risky(inbox, "high")
    with time_machine.travel(
        now_us() / US, tick=False
    ):  # its thirty seconds pass between the ticks
        assert tick() == 0
        notification = Notification.objects.get()
        assert (notification.state, notification.tries, notification.last_error) == (
            "due",
            1,
            "hooks.example.org answered 500.",
        )
        assert Gate.objects.get(id=gate.id).status == "pending"
        assert tick(29) == 0
        assert Notification.objects.get().tries == 1, "half a minute is the least between two tries"
        monkeypatch.setattr(outbound_http, "post_webhook", lambda *_: None)
        assert tick(31) == 1
    assert (Notification.objects.get().state, Notification.objects.get().last_error) == ("sent", "")


def test_an_undeliverable_notification_is_marked_as_failed(
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_full_channel("webhook", requests=False)

    def fail_delivery(*_arguments: Any) -> None:
        raise outbound_http.AddressRefused(
            "hooks.example.org leads to 10.0.0.1, which is no public address."
        )

    monkeypatch.setattr(outbound_http, "post_webhook", fail_delivery)
    inbox.answer(risky(inbox, "high"), "reviewer", "deny")
    for hour in range(notifications.MAX_DELIVERY_TRIES + 5):
        tick(3_700 * hour)
    notification = Notification.objects.get()
    assert (notification.state, notification.tries) == ("failed", notifications.MAX_DELIVERY_TRIES)
    assert "no public address" in notification.last_error


def test_a_broken_channel_does_not_silence_the_others(
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_full_channel("webhook")
    add_full_channel("email")

    def fail_delivery(*_arguments: Any) -> None:
        raise RuntimeError("anything at all")

    monkeypatch.setattr(outbound_http, "post_webhook", fail_delivery)
    risky(inbox, "high")
    assert tick() == 1
    assert len(mail.outbox) == 1


@pytest.mark.parametrize("point", ["cut", "claim", "deliver", "mark"])
def test_a_kill_at_any_point_sends_it_again_under_the_same_key(
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
    posted: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    add_full_channel("webhook")
    gate = risky(inbox, "high")
    owner, name = {
        "cut": (notifications, "_write_notification"),
        "claim": (notifications, "_claim_notification"),
        "deliver": (delivery, "deliver_message"),
        "mark": (notifications, "_mark"),
    }[point]
    original = getattr(owner, name)

    def half(*arguments: Any, **values: Any) -> None:
        if point == "claim":
            original(*arguments, **values)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, half)
        with pytest.raises(Killed):
            tick()
    tick(61)
    tick(200)
    keys = {body["id"] for _url, body, _headers in posted}
    assert keys == {f"gate.requested:{gate.id.hex}"}
    assert len(posted) == (2 if point == "mark" else 1)
    assert Notification.objects.get().state == "sent"


def test_two_workers_send_a_notification_once(
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
    posted: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_full_channel("webhook")
    risky(inbox, "high")
    outbox.deliver_due()
    original = notifications._grouped

    def overtaken(due: Any) -> Any:
        due_rows = list(original(due))
        with monkeypatch.context() as patched:
            patched.setattr(notifications, "_grouped", original)
            assert notifications.send_due_notifications() == 1, "the other worker is quicker"
        return due_rows

    monkeypatch.setattr(notifications, "_grouped", overtaken)
    assert notifications.send_due_notifications() == 0
    assert len(posted) == 1


def test_a_channel_that_is_off_or_of_another_project_gets_nothing(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    off = add_full_channel()
    channels.update_channel(off, inbox.user("administrator"), enabled=False)
    everything: dict[str, Any] = dict.fromkeys(channels.TOPIC_FLAGS, True)
    channels.add_channel(
        inbox.organization.other,
        "email",
        "other@example.org",
        inbox.organization.neighbour.user,
        **everything,
    )
    risky(inbox, "high")
    tick()
    assert mail.outbox == []
    assert not Notification.objects.exists()


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("email", "nobody"),
        ("email", "a@example.org\nBcc: b@example.org"),
        ("webhook", "http://hooks.example.org/"),
        ("webhook", "https://10.0.0.1/"),
        ("slack", "https://elsewhere.example.org/"),
        ("pager", "x"),
    ],
)
def test_an_address_that_cannot_be_is_refused(
    add_full_channel: Callable[..., NotificationChannel], kind: str, target: str
) -> None:
    with pytest.raises(ChangeRefused), transaction.atomic():
        add_full_channel(kind, target)
    assert not NotificationChannel.objects.exists()


def test_the_secret_of_a_webhook_is_stored_in_no_table(
    add_full_channel: Callable[..., NotificationChannel],
) -> None:
    channel = add_full_channel("webhook")
    stored = str(list(NotificationChannel.objects.values())) + str(list(Outbox.objects.values()))
    assert channels.derive_webhook_secret(channel.id) not in stored


def test_the_command_does_the_same_from_one_process(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    add_full_channel()
    risky(inbox, "high")
    outbox.deliver_due()
    output = io.StringIO()
    call_command("send_notifications", stdout=output)
    assert output.getvalue() == "1 sent\n"
