"""What is stuck reaches people by the channels that they chose: once raised, once over, whatever is
killed between."""

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
from tests.approvals.inbox_scenario import Desk
from tests.approvals.notification_helpers import ADDRESS, Killed, risky, tick
from tests.recovery.stuck_helpers import US, heartbeat, leased, pass_by, sweeps_go_on

pytestmark = pytest.mark.django_db
SILENT = dict.fromkeys(channels.TOPIC_FLAGS, False)
TITLE = "never-in-a-notice"


@pytest.fixture(autouse=True)
def _outside(settings: Settings) -> None:
    settings.GATEBOOK_WEBHOOK_HOSTS = frozenset({"hooks.example.org"})
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The bodies that went out by HTTP."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(
        outbound_http, "post_webhook", lambda _url, body, _headers: sent.append(orjson.loads(body))
    )
    return sent


@pytest.fixture
def hears(desk: Desk) -> Callable[..., NotificationChannel]:
    """Add a channel that hears of what is stuck and of nothing else, unless a test says otherwise."""

    def add(kind: str = "email", target: str = "", **options: Any) -> NotificationChannel:
        address = target or ("team@example.org" if kind == "email" else ADDRESS)
        return channels.add_channel(
            desk.project,
            kind,
            address,
            desk.user("administrator"),
            **{**SILENT, "stuck": True, **options},
        )

    return add


def look() -> None:
    """What two sweeps in a row see."""
    sweeps_go_on(200)
    sweeper.sweep_stuck()
    sweeper.sweep_stuck()


def died(desk: Desk, key: str = "s-1", **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A session whose worker fell silent, and its lease."""
    made = leased(desk.agent, key, title=TITLE, **more)
    pass_by(121)
    look()
    return made


def test_who_chose_it_hears_what_is_stuck_and_that_it_is_over_each_once(
    desk: Desk, hears: Callable[..., NotificationChannel], posted: list[dict[str, Any]]
) -> None:
    hears()
    hears("webhook")
    hears(target="breaches@example.org", stuck=False, violations=True, requests=True)
    session, lease = died(desk)
    assert tick() == 2
    (letter,) = mail.outbox
    handle = Session.objects.get(id=session["id"]).opened_position
    assert letter.to == ["team@example.org"]
    assert (
        letter.subject
        == f"Gatebook: Session s_{handle} of deploy-7 is stuck: Worker gone: lease expired"
    )
    assert f"/sessions/{session['id']}/" in letter.body
    assert TITLE not in letter.subject + str(letter.body)
    assert tick() == 0
    heartbeat(desk.agent, lease)
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
    pass_by(121)  # the same again under one epoch: the board says so, people have heard
    look()
    assert tick() == 0
    assert {(one.topic, one.state) for one in Notification.objects.all()} == {
        ("session.stuck", "sent"),
        ("session.recovered", "sent"),
    }


@pytest.mark.parametrize("owns", ["session", "agent"])
def test_whose_it_is_hears_of_it_at_their_own_address_whatever_else_they_listen_to(
    desk: Desk, owns: str
) -> None:
    for name in ("viewer", "reviewer"):
        own: dict[str, Any] = {"person": desk.user(name), **SILENT}
        channels.add_channel(
            desk.project, "email", f"{name}@example.org", desk.user("administrator"), **own
        )
    if owns == "session":
        session, lease = died(desk, owner="viewer")
    else:
        desk.agent.session("s-0")
        Agent.objects.update(owner=desk.user("viewer"))
        session, lease = died(desk)
    assert tick() == 1
    assert [letter.to for letter in mail.outbox] == [["viewer@example.org"]]
    desk.agent.post(
        f"/sessions/{session['id']}/end", {"status": "completed", "lease_epoch": lease["epoch"]}
    )
    sweeper.sweep_stuck()
    assert tick() == 1
    assert [letter.to for letter in mail.outbox] == [["viewer@example.org"]] * 2


def test_what_is_over_before_it_was_told_is_told_to_nobody(
    desk: Desk, hears: Callable[..., NotificationChannel]
) -> None:
    hears()
    _session, lease = died(desk)
    outbox.deliver_due()
    assert Notification.objects.get().state == "due"
    heartbeat(desk.agent, lease)
    sweeper.sweep_stuck()
    assert tick() == 0
    assert mail.outbox == []
    assert [one.state for one in Notification.objects.all()] == ["quiet"]


def test_many_that_fall_silent_together_are_one_letter(
    desk: Desk, hears: Callable[..., NotificationChannel]
) -> None:
    hears()
    made = [leased(desk.agent, f"s-{number}")[0] for number in range(3)]
    pass_by(121)
    look()
    assert tick() == 4  # each of them, and their agent: a whole source is silent
    (letter,) = mail.outbox
    assert letter.subject == "Gatebook: 4 alerts of stuck sessions"
    assert all(f"/sessions/{session['id']}/" in letter.body for session in made)
    assert "Agent deploy-7 is stuck: No reports" in letter.body


def test_each_effect_of_which_nobody_knows_is_news_also_in_a_session_without_a_lease(
    desk: Desk, hears: Callable[..., NotificationChannel]
) -> None:
    hears()
    desk.rules("name: open\nrules:\n  - {id: all, title: All, match: {}, outcome: allow}\n")
    effects = [desk.plan(f"e-{number}", arguments={"n": number}) for number in range(2)]
    for effect in effects:
        desk.agent.dispatch(effect)
    pass_by(4_000)
    look()
    assert tick() == 2
    assert mail.outbox[0].subject == "Gatebook: 2 alerts of stuck sessions"
    for effect in effects:
        desk.agent.acknowledge(effect)
        sweeper.sweep_stuck()
        assert tick() == 1
        assert mail.outbox[-1].subject.endswith("is no longer stuck by rule S4")
    later = desk.plan("e-9", arguments={"n": 9})
    desk.agent.dispatch(later)
    pass_by(4_000)
    look()
    assert tick() == 1
    assert f"/effects/{later['id']}/" in mail.outbox[-1].body


@pytest.mark.parametrize("told", [True, False])
def test_a_request_that_nobody_opened_is_told_of_once(
    desk: Desk, hears: Callable[..., NotificationChannel], told: bool
) -> None:
    """Half of its time over is the alarm of the gate's channels and rule S6: one channel hears it
    by one of them."""
    hears(requests=told)
    gate = risky(desk, "high")
    tick()
    gone = (gate.decide_by_us - gate.requested_at_us) // 2 // US + 5
    notifications_before = len(mail.outbox)
    if told:
        tick(gone)
    for _ in range(2):
        sweeps_go_on(gone)
        sweeper.sweep_stuck(now_us() + gone * US)
    tick(gone)
    assert len(mail.outbox) == notifications_before + 1
    assert ("no eligible reviewer" in mail.outbox[-1].subject) is told


@pytest.mark.once  # the statements are those of the tests above, and of gates
@pytest.mark.parametrize("point", ["cut", "claim", "deliver", "mark"])
def test_a_kill_at_any_point_tells_it_again_under_the_same_key(
    desk: Desk,
    hears: Callable[..., NotificationChannel],
    posted: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    hears("webhook")
    session, _lease = died(desk)
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
