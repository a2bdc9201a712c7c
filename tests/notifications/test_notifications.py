"""Who gets notifications of gates and violations, when, and with which text."""

import hashlib
import hmac
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from django.core import mail

from accounts import people
from approvals.gates import gates
from approvals.gates.statuses import US
from approvals.models import Gate
from approvals.review import form_token
from db.clock import now_us
from journal import outbox
from journal.models import Entry
from notifications import channels, notifications, webhooks
from notifications.models import Notification, NotificationChannel
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.notification_helpers import (
    ADDRESS,
    SECRET_ARGUMENT,
    _outside,
    add_full_channel,
    posted,
    risky,
    tick,
)

__all__ = ["_outside", "add_full_channel", "posted"]


def test_a_high_risk_request_is_notified_at_once_in_text_of_the_server(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    add_full_channel()
    gate = risky(inbox, "high")
    assert tick() == 1
    (letter,) = mail.outbox
    assert letter.to == ["team@example.org"]
    assert (
        letter.subject
        == f"Gatebook: high: tool-high by deploy-7 (g_{gate.opened_position}) needs approval"
    )
    assert f"/approvals/{gate.id}/" in letter.body
    assert "Decide by" in letter.body
    assert SECRET_ARGUMENT not in letter.subject + str(letter.body)
    assert tick() == 0
    assert len(mail.outbox) == 1


def test_a_message_to_a_chat_is_plain_text_whatever_a_tool_is_called(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel], posted: list[Any]
) -> None:
    add_full_channel("slack")
    inbox.rules("name: basic\nrules:\n  - {id: all, title: All, match: {}, outcome: require}\n")
    inbox.plan(tool="<!channel> <https://evil.example|click>", arguments={"note": SECRET_ARGUMENT})
    assert tick() == 1
    ((url, body, _headers),) = posted
    assert url == ADDRESS
    assert "&lt;!channel&gt;" in body["text"]
    assert "<" not in body["text"]
    assert body["mrkdwn"] is False
    assert SECRET_ARGUMENT not in json.dumps(body)


def test_a_program_gets_ids_and_a_signature_that_it_can_check(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel], posted: list[Any]
) -> None:
    channel = add_full_channel("webhook")
    gate = risky(inbox, "low")
    tick()
    inbox.answer(gate, "reviewer")
    tick()
    requested, ruled = posted
    assert requested[1] == {
        "id": f"gate.requested:{gate.id.hex}",
        "event": "gate.requested",
        "gate": str(gate.id),
        "version": 1,
        "effect": str(gate.effect_id),
        "session": str(gate.session_id),
        "session_key": gate.session.key,
        "effect_key": gate.effect.effect_key,
    }
    _url, body, headers = ruled
    assert body["event"] == "gate.resolved"
    assert body["gate"] == str(gate.id)
    assert body["version"] == Gate.objects.get(id=gate.id).version
    seconds, signature = re.fullmatch(
        r"t=(\d+),v1=([0-9a-f]{64})", headers[webhooks.SIGNATURE]
    ).groups()  # type: ignore[union-attr]
    secret, text = (
        channels.derive_webhook_secret(channel.id),
        json.dumps(body, separators=(",", ":")),
    )
    assert (
        hmac.new(secret.encode(), f"{seconds}.{text}".encode(), hashlib.sha256).hexdigest()
        == signature
    )


@pytest.mark.parametrize(("risk", "after_s"), [("critical", 0), ("high", 0), ("medium", 15 * 60)])
def test_the_delay_of_a_notification_follows_the_risk(
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
    risk: str,
    after_s: int,
) -> None:
    add_full_channel()
    risky(inbox, risk)
    with time_machine.travel((now_us() // US // 900 + 1) * 900 + 1, tick=False):
        if after_s:
            assert tick() == 0
            assert tick(after_s - 2) == 0
        assert tick(after_s) == 1


def test_lesser_requests_come_together_in_one_letter(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    add_full_channel()
    made = [risky(inbox, "medium", f"e-{number}") for number in range(3)]
    assert tick() == 0
    assert tick(15 * 60) == 3
    (letter,) = mail.outbox
    assert "3 requests need approval" in letter.subject
    assert all(f"/approvals/{gate.id}/" in letter.body for gate in made)


def risky_but_reversible(inbox: InboxScenario, key: str) -> Gate:
    if not inbox.project.tools.filter(name="deploy.web").exists():
        inbox.declare("deploy.web", "compensable")
    target = {"environment": "production"}
    planned = inbox.plan(key, tool="deploy.web", arguments={"n": key}, target=target)
    return inbox.gate(planned)


def test_four_requests_of_one_session_within_the_window_are_one_letter_that_lists_four(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    add_full_channel()
    gates = [risky_but_reversible(inbox, f"e-{number}") for number in range(3)]
    assert {gate.risk for gate in gates} == {"high"}
    assert tick() == 0
    with time_machine.travel(gates[0].requested_at_us / US + 40, tick=False):
        gates.append(risky_but_reversible(inbox, "e-3"))
        assert tick() == 0
    assert tick(61) == 4
    (letter,) = mail.outbox
    assert "4 requests need approval" in letter.subject
    assert all(f"/approvals/{gate.id}/" in letter.body for gate in gates)
    for gate in gates:
        inbox.answer(gate, "reviewer", "deny")
    with time_machine.travel(now_us() / US + 62, tick=False):
        assert tick() + tick(120) == 4
    assert "4 requests were decided" in mail.outbox[-1].subject
    assert len(mail.outbox) == 2


def test_an_irreversible_request_never_waits_for_those_of_its_session(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    add_full_channel()
    risky_but_reversible(inbox, "e-0")
    assert tick() == 0
    final = risky(inbox, "high", "e-1")
    assert tick() == 1
    (letter,) = mail.outbox
    assert f"/approvals/{final.id}/" in letter.body


def test_a_gate_that_ended_before_any_notification_sends_none(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    add_full_channel(rulings=False)
    gate = risky(inbox, "medium")
    tick()
    inbox.answer(gate, "reviewer", "deny")
    assert tick(15 * 60) == 0
    assert mail.outbox == []
    assert Notification.objects.get().state == "quiet"


def test_a_gate_that_ended_while_its_notification_was_due_sends_none(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    add_full_channel(rulings=False)
    gate = risky(inbox, "high")
    outbox.deliver_due()
    inbox.answer(gate, "reviewer", "deny")
    assert notifications.send_due_notifications() == 0
    assert Notification.objects.get().state == "quiet"


@pytest.mark.parametrize(("answer", "words"), [("approve", "was approved"), ("deny", "was denied")])
def test_recipients_of_a_request_get_its_end_without_subscribing_to_rulings(
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
    answer: str,
    words: str,
) -> None:
    add_full_channel(rulings=False)
    gate = risky(inbox, "high")
    tick()
    assert inbox.answer(gate, "reviewer", answer, step_up="typed_digest").refusal is None
    assert tick() == 1
    assert mail.outbox[1].subject.endswith(f"(g_{gate.opened_position}) {words}")


@pytest.mark.parametrize("answer", ["approve", "deny", "request_changes"])
def test_the_requester_and_voters_get_the_outcome(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel], answer: str
) -> None:
    silent = dict.fromkeys(channels.TOPIC_FLAGS, False) | {"minimum_risk": "critical"}
    inbox.agent.session("s-1", on_behalf_of="viewer")
    for name in ("viewer", "reviewer", "administrator", "operator"):
        add_full_channel(target=f"{name}@example.org", person=inbox.user(name), **silent)
    add_full_channel(target="off@example.org", **silent)
    gate = risky(inbox, "medium")
    assert tick(15 * 60) == 0
    assert inbox.answer(gate, "reviewer", answer, "agreed in INC-204").refusal is None
    assert tick() == 2
    assert {letter.to[0] for letter in mail.outbox} == {
        "viewer@example.org",
        "reviewer@example.org",
    }
    assert tick() == 0


def test_the_requester_gets_the_expiry(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    inbox.agent.session("s-1", on_behalf_of="viewer")
    add_full_channel(person=inbox.user("viewer"), **dict.fromkeys(channels.TOPIC_FLAGS, False))
    risky(inbox, "medium")
    with time_machine.travel(now_us() / US + 3_700, tick=False):
        gates.expire_due_gates()
        tick()
    assert mail.outbox[0].subject.endswith("expired without a decision")


def test_a_person_who_left_the_project_gets_no_notification(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    inbox.agent.session("s-1", on_behalf_of="viewer")
    add_full_channel(person=inbox.user("viewer"), **dict.fromkeys(channels.TOPIC_FLAGS, False))
    gate = risky(inbox, "medium")
    people.remove_project_member(inbox.person("viewer"), actor="tests")
    inbox.answer(gate, "reviewer")
    assert tick() == 0


def test_expiry_is_sent_to_subscribed_channels(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel], posted: list[Any]
) -> None:
    add_full_channel("webhook", requests=False, rulings=False)
    risky(inbox, "high")
    with time_machine.travel(now_us() / US + 3_700, tick=False):
        gates.expire_due_gates()
        tick()
    ((_url, body, _headers),) = posted
    assert body["event"] == "gate.expired"


def test_risks_below_the_minimum_are_not_notified(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    add_full_channel(minimum_risk="high")
    risky(inbox, "medium", "e-1")
    risky(inbox, "high", "e-2")
    tick()
    tick(15 * 60)
    assert [letter.subject.split(": ")[1] for letter in mail.outbox] == ["high"]


def test_an_effect_without_permission_is_notified_at_once(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    add_full_channel()
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
    assert inbox.effect(effect).permission == "bypassed"
    tick()
    stored = inbox.effect(effect)
    (letter,) = (
        message for message in mail.outbox if "Executed without approval" in message.subject
    )
    assert (
        letter.subject
        == f"Gatebook: Executed without approval: git.push by {inbox.organization.agent.name} ({stored})"
    )
    violation = Entry.objects.get(kind="integrity.violation", effect=stored.id)
    assert f"used git.push, in {stored.session}." in letter.body
    assert f"/effects/{stored.id}/?fact={violation.position}#p{violation.position}\n" in letter.body


def test_a_request_unopened_for_half_of_its_time_is_notified_once(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    add_full_channel()
    risky(inbox, "high")
    tick()
    assert tick(1_790) == 0
    assert tick(1_810) == 1
    assert "no eligible reviewer has opened it" in mail.outbox[1].subject
    assert tick(1_900) == 0


def test_many_unsubscribed_gates_do_not_delay_a_subscribed_one(
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notifications, "MAX_UNSEEN_PER_RUN", 2)
    add_full_channel(minimum_risk="critical")
    for number in range(3):
        risky(inbox, "high", f"h-{number}")
    critical = risky(inbox, "critical", "c-1")
    tick()
    assert tick(1_810) == 1
    assert Notification.objects.get(topic="gate.unseen").gate == critical.id


@pytest.mark.parametrize(
    ("person", "role", "sent"), [("reviewer", "reviewer", 0), ("viewer", "viewer", 1)]
)
def test_only_a_view_by_somebody_who_may_rule_counts(
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
    person: str,
    role: str,
    sent: int,
) -> None:
    add_full_channel()
    gate = risky(inbox, "high")
    tick()
    form_token.record_gate_view(gate, inbox.person(person, role))
    assert tick(1_810) == sent
