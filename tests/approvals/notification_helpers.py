"""Helpers for notification tests: channels, requests by their risk, and a pass of the worker."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from pytest_django import Settings

from approvals.gates.statuses import US
from approvals.models import Gate
from db.clock import now_us
from journal import outbox
from notifications import channels, notifications, outbound_http
from notifications.models import NotificationChannel
from tests.approvals.inbox_scenario import InboxScenario

ADDRESS = "https://hooks.example.org/gates"
SECRET_ARGUMENT = "do-not-tell-anybody"


@pytest.fixture(autouse=True)
def _outside(settings: Settings) -> None:
    settings.GATEBOOK_WEBHOOK_HOSTS = frozenset({"hooks.example.org"})
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any], dict[str, str]]]:
    """The HTTP deliveries: address, body, headers."""
    sent: list[tuple[str, dict[str, Any], dict[str, str]]] = []

    def post(url: str, body: bytes, headers: dict[str, str]) -> None:
        sent.append((url, json.loads(body), dict(headers)))

    monkeypatch.setattr(outbound_http, "post_webhook", post)
    return sent


@pytest.fixture
def add_full_channel(inbox: InboxScenario) -> Callable[..., NotificationChannel]:
    """Add a channel that subscribes to everything."""

    def add(kind: str = "email", target: str = "", **options: Any) -> NotificationChannel:
        address = target or ("team@example.org" if kind == "email" else ADDRESS)
        topics = {**dict.fromkeys(channels.TOPIC_FLAGS, True), **options}
        return channels.add_channel(
            inbox.project, kind, address, inbox.user("administrator"), **topics
        )

    return add


def risky(inbox: InboxScenario, risk: str, effect_key: str = "e-1") -> Gate:
    """A gate with the risk that the server computes from the tool's declaration and its target."""
    reversibility = {
        "critical": "irreversible",
        "high": "irreversible",
        "medium": "compensable",
        "low": "reversible",
    }
    name = f"tool-{risk}"
    if not inbox.project.tools.filter(name=name).exists():
        inbox.declare(name, reversibility[risk])
    target = {"environment": "production"} if risk == "critical" else {}
    arguments = {"n": effect_key, "note": SECRET_ARGUMENT}
    gate = inbox.gate(inbox.plan(effect_key, tool=name, arguments=arguments, target=target))
    assert gate.risk == risk
    return gate


def tick(after_s: float = 0) -> int:
    """Run the worker's pass of every five seconds, so many seconds later."""
    with time_machine.travel(now_us() / US + after_s + 0.001, tick=False):
        outbox.deliver_due()
        return notifications.send_due_notifications()


class Killed(BaseException):
    """Simulates SIGKILL: no handler runs."""
