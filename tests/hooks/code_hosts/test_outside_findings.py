"""Findings: an identity of an agent acted, and no effect is behind it."""

from typing import Any

import orjson
import pytest
from django.core import mail

from db.clock import now_us
from hooks.code_hosts import agent_identities, host_events
from hooks.models import AgentIdentity, CodeHostEvent
from journal import outbox
from journal.models import Entry, Outbox
from notifications import channels, notifications, violation_text
from notifications.models import Notification
from tests.hooks.code_hosts.code_host import CodeHost, matches_of, pass_time
from tests.pages.plans import assert_no_scans, explained

pytestmark = pytest.mark.django_db
GRACE_S = host_events.GRACE_S


@pytest.fixture
def bot(host: CodeHost) -> CodeHost:
    """The agent acts as release-bot."""
    agent_identities.add_identity(
        host.organization.agent, "github", "release-bot", actor="gatebook"
    )
    return host


def violations() -> list[Entry]:
    return list(Entry.objects.filter(kind="integrity.violation").order_by("position"))


def test_after_the_grace_time_it_is_a_finding(
    bot: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = bot.push()
    assert (event.status, event.agent) == ("open", bot.organization.agent)
    assert pass_time(event, monkeypatch, GRACE_S - 1) == "open"
    assert violations() == []
    assert pass_time(event, monkeypatch, GRACE_S) == "outside"
    (entry,) = violations()
    assert orjson.loads(entry.facts) == {"violation": "acted_outside_gatebook"}
    assert (entry.position, entry.subject, entry.effect) == (
        event.finding_position,
        event.id,
        None,
    )
    assert pass_time(event, monkeypatch, 2 * GRACE_S) == "outside"
    assert len(violations()) == 1
    page = bot.organization.client("viewer").get("/code-hosts/?show=outside").content.decode()
    assert "acted outside Gatebook" in page
    assert f"/code-hosts/{event.delivery_id}/" in page


def test_a_sender_that_is_no_agents_identity_is_no_finding(
    host: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = host.push()
    assert pass_time(event, monkeypatch, GRACE_S) == "unmatched"
    assert violations() == []


def test_an_address_is_an_identity_too(host: CodeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "Release-Bot@Example.org"
    agent_identities.add_identity(host.organization.agent, "github", address, actor="gatebook")
    event = host.push()
    assert event.agent == host.organization.agent
    assert "example.org" not in event.facts.lower()  # kept as a keyed digest only
    assert pass_time(event, monkeypatch, GRACE_S) == "outside"


def test_an_identity_of_another_host_does_not_count(
    host: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_identities.add_identity(
        host.organization.agent, "gitlab", "release-bot", actor="gatebook"
    )
    assert pass_time(host.push(), monkeypatch, GRACE_S) == "unmatched"


def test_consequences_are_no_finding(bot: CodeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    run = {
        "action": "completed",
        "workflow_run": {"id": 5, "event": "push", "head_sha": "a" * 40},
        "sender": {"login": "release-bot"},
    }
    bot.deliver("workflow_run", run)
    assert pass_time(CodeHostEvent.objects.get(), monkeypatch, GRACE_S) == "unmatched"


def test_an_effect_that_was_never_dispatched_is_named(
    bot: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = bot.plan_push()
    event = bot.push()
    assert pass_time(event, monkeypatch, GRACE_S) == "outside"
    assert matches_of(event) == [("push_ref_after", "undispatched")]
    (entry,) = violations()
    assert orjson.loads(entry.body.text)["planned"] == [planned["id"]]
    page = bot.organization.client("viewer").get(f"/code-hosts/{event.delivery_id}/")
    assert "planned the same, was never dispatched" in page.content.decode()


def test_the_finding_says_that_its_effect_appeared_later(
    bot: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = bot.push()
    pass_time(event, monkeypatch, GRACE_S)
    effect = bot.dispatch_push()
    assert pass_time(event, monkeypatch, 1_800) == "matched"
    assert event.settled_us is not None
    entry = Entry.objects.get(kind="code_host.settled")
    assert (entry.effect, entry.subject) == (effect.id, event.id)
    page = bot.organization.client("viewer").get(f"/code-hosts/{event.delivery_id}/")
    assert "Its effect was reported" in page.content.decode()
    assert len(violations()) == 1  # what was written stays


def test_a_withdrawn_match_makes_it_a_finding_again(
    bot: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = bot.push()
    pass_time(event, monkeypatch, GRACE_S)
    bot.dispatch_push()
    pass_time(event, monkeypatch, 1_800)
    match = event.matches.get()
    host_events.withdraw_event_match(
        match.id, bot.project.id, actor="p_1", reason="Another job did it."
    )
    event.refresh_from_db()
    assert (event.status, event.settled_us) == ("outside", None)


def notify_all(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    later = now_us() + seconds * 1_000_000
    monkeypatch.setattr(outbox, "now_us", lambda: later)
    monkeypatch.setattr(host_events, "now_us", lambda: later)
    outbox.deliver_due()
    outbox.deliver_due()
    monkeypatch.undo()
    notifications.send_due_notifications()


@pytest.fixture
def channel(bot: CodeHost) -> Any:
    user = bot.organization.members["administrator"].user
    return channels.add_channel(bot.project, "email", "ops@example.org", user, violations=True)


def test_the_outbox_makes_the_finding_and_notifies(
    bot: CodeHost, channel: Any, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    event = bot.push(ref="refs/heads/evil.example")
    notify_all(monkeypatch, GRACE_S + 1)
    event.refresh_from_db()
    assert event.status == "outside"
    (message,) = mail.outbox
    text = f"{message.subject}\n{message.body}"
    assert "Acted outside Gatebook" in text
    assert f"/code-hosts/{event.delivery_id}/" in text
    assert "evil[.]example" in text
    assert "evil.example" not in text
    (finding,) = violations()
    with explained() as plans:
        violation_text.build_violation_notification(finding)
    assert_no_scans(plans)


def test_nothing_is_sent_once_the_effect_appeared(
    bot: CodeHost, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = bot.push()
    pass_time(event, monkeypatch, GRACE_S)
    bot.dispatch_push()
    pass_time(event, monkeypatch, 1_800)
    notify_all(monkeypatch, 1)
    assert [row.state for row in Notification.objects.all()] == ["quiet"]


def test_each_stage_queues_the_next_until_a_day_passed(
    bot: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = bot.push()
    for stage in host_events.STAGES_S:
        assert Outbox.objects.filter(
            deduplication_key=f"code_host:{event.id}:{stage}",
            due_at_us=event.received_us + stage * 1_000_000,
        ).exists()
        pass_time(event, monkeypatch, stage)
    assert Outbox.objects.filter(topic=host_events.OUTBOX_TOPIC).count() == len(
        host_events.STAGES_S
    )


def test_a_finding_is_found_by_the_search(bot: CodeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    event = bot.push()
    pass_time(event, monkeypatch, GRACE_S)
    client = bot.organization.client("viewer")
    page = client.get("/search/", {"q": "event violation:acted_outside_gatebook"})
    assert page.status_code == 200
    assert str(event.finding_position) in page.content.decode().replace("\u202f", "")


def test_identities_are_listed_by_administrators(bot: CodeHost) -> None:
    path = f"/settings/code-hosts/agents/{bot.organization.agent.id}/"
    client = bot.organization.client("administrator")
    assert "release-bot" in client.get(path).content.decode()
    added = client.post(path, {"host": "gitlab", "value": "Bot@Example.org"})
    assert added.status_code == 302
    assert AgentIdentity.objects.filter(kind="email", value="bot@example.org").count() == 1
    for value in ("two words", "@", "bot@example.org"):
        refused = client.post(path, {"host": "gitlab", "value": value})
        assert refused.status_code == 422, value
    row = AgentIdentity.objects.get(host="gitlab")
    client.post(f"/settings/code-hosts/identities/{row.id}/remove/")
    assert not AgentIdentity.objects.filter(host="gitlab").exists()
    kinds = Entry.objects.filter(kind__startswith="admin.identity").values_list("kind", flat=True)
    assert list(kinds) == ["admin.identity_added", "admin.identity_added", "admin.identity_removed"]
    assert bot.organization.client("operator").get(path).status_code == 403
