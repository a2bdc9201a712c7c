"""Notifications of stuck sessions by the chosen channels: once raised, once recovered, also after
a kill."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from django.core import mail
from pytest_django import Settings

from accounts.models import Agent
from db.clock import now_us
from journal import outbox
from monitoring.stuck import sweeper
from notifications import channels, delivery, notifications, outbound_http
from notifications.models import Notification, NotificationChannel
from sessions.models import Session
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.notification_helpers import ADDRESS, Killed, risky, tick
from tests.recovery.stuck_helpers import US, heartbeat, leased, pass_by, sweeps_go_on
from tests.rows_with_entries import change_agents

pytestmark = pytest.mark.django_db
SILENT = dict.fromkeys(channels.TOPIC_FLAGS, False)
TITLE = "never-in-a-notification"


@pytest.fixture(autouse=True)
def _outside(settings: Settings) -> None:
    settings.GATEBOOK_WEBHOOK_HOSTS = frozenset({"hooks.example.org"})
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Collect the bodies of sent webhooks."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(
        outbound_http, "post_webhook", lambda _url, body, _headers: sent.append(orjson.loads(body))
    )
    return sent


@pytest.fixture
def add_channel(inbox: InboxScenario) -> Callable[..., NotificationChannel]:
    """Return a factory of channels that get only stuck notifications by default."""

    def add(kind: str = "email", target: str = "", **options: Any) -> NotificationChannel:
        address = target or ("team@example.org" if kind == "email" else ADDRESS)
        return channels.add_channel(
            inbox.project,
            kind,
            address,
            inbox.user("administrator"),
            **{**SILENT, "stuck": True, **options},
        )

    return add


def sweep_twice() -> None:
    """Run two sweeps in a row."""
    sweeps_go_on(200)
    sweeper.sweep_stuck()
    sweeper.sweep_stuck()


def make_dead_session(
    inbox: InboxScenario, key: str = "s-1", **more: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Open a leased session whose worker is dead; return it and its lease."""
    made = leased(inbox.agent, key, title=TITLE, **more)
    pass_by(121)
    sweep_twice()
    return made


def test_a_channel_gets_one_notification_of_stuck_and_one_of_recovered(
    inbox: InboxScenario,
    add_channel: Callable[..., NotificationChannel],
    posted: list[dict[str, Any]],
) -> None:
    add_channel()
    add_channel("webhook")
    add_channel(target="violations@example.org", stuck=False, violations=True, requests=True)
    session, lease = make_dead_session(inbox)
    assert tick() == 2
    (message,) = mail.outbox
    handle = Session.objects.get(id=session["id"]).opened_position
    assert message.to == ["team@example.org"]
    assert (
        message.subject
        == f"Gatebook: Session s_{handle} of deploy-7 is stuck: Worker gone: lease expired"
    )
    assert f"/sessions/{session['id']}/" in message.body
    assert TITLE not in message.subject + str(message.body)
    assert tick() == 0
    heartbeat(inbox.agent, lease)
    sweeper.sweep_stuck()
    assert tick() == 2
    assert mail.outbox[1].subject.endswith(f"s_{handle} of deploy-7 is no longer stuck by rule S2")
    stuck, over = posted
    assert (stuck["event"], stuck["session"], stuck["rule"]) == (
        "session.stuck",
        session["id"],
        "S2",
    )
    assert set(stuck) == {"id", "event", "session", "rule", "position"}
    assert (over["event"], over["id"]) == ("session.recovered", f"over:{stuck['id']}")
    pass_by(121)  # the same epoch again: on the board, but not notified again
    sweep_twice()
    assert tick() == 0
    assert {(row.topic, row.state) for row in Notification.objects.all()} == {
        ("session.stuck", "sent"),
        ("session.recovered", "sent"),
    }


@pytest.mark.parametrize("owns", ["session", "agent"])
def test_the_owner_is_notified_at_their_own_address_under_any_settings(
    inbox: InboxScenario, owns: str
) -> None:
    for name in ("viewer", "reviewer"):
        own: dict[str, Any] = {"person": inbox.user(name), **SILENT}
        channels.add_channel(
            inbox.project, "email", f"{name}@example.org", inbox.user("administrator"), **own
        )
    if owns == "session":
        session, lease = make_dead_session(inbox, owner="viewer")
    else:
        inbox.agent.session("s-0")
        change_agents(Agent.objects.all(), owner=inbox.user("viewer"))
        session, lease = make_dead_session(inbox)
    assert tick() == 1
    assert [message.to for message in mail.outbox] == [["viewer@example.org"]]
    inbox.agent.post(
        f"/sessions/{session['id']}/end", {"status": "completed", "lease_epoch": lease["epoch"]}
    )
    sweeper.sweep_stuck()
    assert tick() == 1
    assert [message.to for message in mail.outbox] == [["viewer@example.org"]] * 2


def test_an_episode_that_recovers_before_its_notification_sends_none(
    inbox: InboxScenario, add_channel: Callable[..., NotificationChannel]
) -> None:
    add_channel()
    _session, lease = make_dead_session(inbox)
    outbox.deliver_due()
    assert Notification.objects.get().state == "due"
    heartbeat(inbox.agent, lease)
    sweeper.sweep_stuck()
    assert tick() == 0
    assert mail.outbox == []
    assert [row.state for row in Notification.objects.all()] == ["quiet"]


def test_many_sessions_that_become_stuck_together_are_one_mail(
    inbox: InboxScenario, add_channel: Callable[..., NotificationChannel]
) -> None:
    add_channel()
    made = [leased(inbox.agent, f"s-{number}")[0] for number in range(3)]
    pass_by(121)
    sweep_twice()
    assert tick() == 4  # three sessions and their agent, which is a silent source
    (message,) = mail.outbox
    assert message.subject == "Gatebook: 4 notifications of stuck sessions"
    assert all(f"/sessions/{session['id']}/" in message.body for session in made)
    assert "Agent deploy-7 is stuck: No reports" in message.body


def test_each_effect_with_an_unknown_outcome_is_notified_without_a_lease_too(
    inbox: InboxScenario, add_channel: Callable[..., NotificationChannel]
) -> None:
    add_channel()
    inbox.rules("name: open\nrules:\n  - {id: all, title: All, match: {}, outcome: allow}\n")
    effects = [inbox.plan(f"e-{number}", arguments={"n": number}) for number in range(2)]
    for effect in effects:
        inbox.agent.dispatch(effect)
    pass_by(4_000)
    sweep_twice()
    assert tick() == 2
    assert mail.outbox[0].subject == "Gatebook: 2 notifications of stuck sessions"
    for effect in effects:
        inbox.agent.acknowledge(effect)
        sweeper.sweep_stuck()
        assert tick() == 1
        assert mail.outbox[-1].subject.endswith("is no longer stuck by rule S4")
    later = inbox.plan("e-9", arguments={"n": 9})
    inbox.agent.dispatch(later)
    pass_by(4_000)
    sweep_twice()
    assert tick() == 1
    assert f"/effects/{later['id']}/" in mail.outbox[-1].body


@pytest.mark.parametrize("has_requests", [True, False])
def test_an_unopened_approval_request_is_notified_once(
    inbox: InboxScenario, add_channel: Callable[..., NotificationChannel], has_requests: bool
) -> None:
    """Both the gate reminder and rule S6 fire at half of the time; a channel gets only one of them."""
    add_channel(requests=has_requests)
    gate = risky(inbox, "high")
    tick()
    gone = (gate.decide_by_us - gate.requested_at_us) // 2 // US + 5
    notifications_before = len(mail.outbox)
    if has_requests:
        tick(gone)
    for _ in range(2):
        sweeps_go_on(gone)
        sweeper.sweep_stuck(now_us() + gone * US)
    tick(gone)
    assert len(mail.outbox) == notifications_before + 1
    assert ("no eligible reviewer" in mail.outbox[-1].subject) is has_requests


@pytest.mark.once  # the statements are those of the tests above
@pytest.mark.parametrize("point", ["cut", "claim", "deliver", "mark"])
def test_a_kill_at_any_point_notifies_again_under_the_same_key(
    inbox: InboxScenario,
    add_channel: Callable[..., NotificationChannel],
    posted: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    add_channel("webhook")
    session, _lease = make_dead_session(inbox)
    owner, name = {
        "cut": (notifications, "_write_notification"),
        "claim": (notifications, "_claim_notification"),
        "deliver": (delivery, "deliver_message"),
        "mark": (notifications, "_mark"),
    }[point]
    with_state = getattr(owner, name)

    def half(*arguments: Any, **values: Any) -> None:
        if point == "claim":
            with_state(*arguments, **values)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, half)
        with pytest.raises(Killed):
            tick()
    sweeper.sweep_stuck()
    tick(61)
    tick(200)
    assert {body["id"] for body in posted} == {f"stuck:{session['id'].replace('-', '')}:S2:1"}
    assert len(posted) == (2 if point == "mark" else 1)
    assert Notification.objects.get().state == "sent"
