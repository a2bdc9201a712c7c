"""The page of notification channels."""

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from journal.models import Body, Entry
from notifications import notifications
from notifications.models import Notification, NotificationChannel
from tests.pages.people import Organization

pytestmark = pytest.mark.django_db
PAGE = "/settings/notifications/"
TOPICS = ["requests", "rulings", "expiries", "violations"]


@pytest.fixture(autouse=True)
def _allowed(settings: Settings) -> None:
    settings.GATEBOOK_WEBHOOK_HOSTS = frozenset({"hooks.example.org"})


def added(
    organization: Organization,
    kind: str = "email",
    target: str = "team@example.org",
    **fields: object,
) -> NotificationChannel:
    sent = {"kind": kind, "target": target, "minimum_risk": "high", "topics": TOPICS, **fields}
    answer = organization.client("administrator").post(PAGE, sent)
    assert answer.status_code == 302, answer.content.decode()
    return NotificationChannel.objects.get(target=target, removed_at_us=None)


def test_the_author_of_a_new_channel_is_recorded(organization: Organization) -> None:
    channel = added(organization, topics=["requests"])
    assert (channel.requests, channel.rulings, channel.minimum_risk, channel.enabled) == (
        True,
        False,
        "high",
        True,
    )
    entry = Entry.objects.get(kind="admin.channel_added")
    assert entry.subject == channel.id
    assert entry.actor == organization.members["administrator"].user.person.pseudonym
    assert "team@example.org" not in entry.facts
    assert "team@example.org" in organization.client("administrator").get(PAGE).content.decode()


def test_a_channel_may_be_a_members_own(organization: Organization) -> None:
    channel = added(organization, person="viewer")
    assert channel.person == organization.members["viewer"].user
    facts = Entry.objects.get(kind="admin.channel_added").facts
    assert organization.members["viewer"].user.person.pseudonym in facts
    client = organization.client("administrator")
    assert '<span class="quiet">of viewer</span>' in client.get(PAGE).content.decode()
    sent = {
        "kind": "email",
        "target": "n@example.org",
        "minimum_risk": "low",
        "topics": TOPICS,
        "person": "neighbour",
    }
    refused = client.post(PAGE, sent)
    assert refused.status_code == 422
    assert "Select a valid choice" in refused.content.decode()
    assert NotificationChannel.objects.count() == 1


def test_the_secret_of_a_webhook_is_shown_once(organization: Organization) -> None:
    from notifications import channels

    client = organization.client("administrator")
    sent = {
        "kind": "webhook",
        "target": "https://hooks.example.org/",
        "minimum_risk": "low",
        "topics": TOPICS,
    }
    page = client.post(PAGE, sent, follow=True).content.decode()
    secret = channels.derive_webhook_secret(NotificationChannel.objects.get().id)
    assert secret in page
    assert secret not in client.get(PAGE).content.decode()


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        ({"target": "nobody"}, "This is not an e-mail address."),
        ({"kind": "webhook", "target": "https://10.0.0.1/"}, "not an allowed host"),
        ({"kind": "slack", "target": "http://hooks.example.org/"}, "begins with https://"),
        ({"target": ""}, "This field is required."),
        ({"minimum_risk": "none"}, "Select a valid choice"),
    ],
)
def test_a_refused_channel_keeps_the_form_as_typed(
    organization: Organization, sent: dict[str, str], sentence: str
) -> None:
    fields: dict[str, Any] = {
        "kind": "email",
        "target": "team@example.org",
        "minimum_risk": "low",
        "topics": TOPICS,
    }
    fields |= sent
    answer = organization.client("administrator").post(PAGE, fields)
    assert answer.status_code == 422
    assert sentence in answer.content.decode().replace("&#x27;", "'")
    assert fields["target"] in answer.content.decode()
    assert not NotificationChannel.objects.exists()


def test_the_same_address_is_there_once(organization: Organization) -> None:
    added(organization)
    sent = {"kind": "email", "target": "team@example.org", "minimum_risk": "low", "topics": TOPICS}
    answer = organization.client("administrator").post(PAGE, sent)
    assert answer.status_code == 422
    assert NotificationChannel.objects.count() == 1


def test_a_channel_is_changed_turned_off_and_removed(organization: Organization) -> None:
    channel, client = added(organization), organization.client("administrator")
    client.post(f"{PAGE}{channel.id}/", {"minimum_risk": "critical", "topics": ["violations"]})
    channel.refresh_from_db()
    assert (channel.minimum_risk, channel.requests, channel.violations) == ("critical", False, True)
    client.post(f"{PAGE}{channel.id}/switch/")
    channel.refresh_from_db()
    assert channel.enabled is False
    client.post(f"{PAGE}{channel.id}/remove/")
    channel.refresh_from_db()
    assert channel.removed_at_us is not None
    assert client.get(f"{PAGE}{channel.id}/").status_code == 404
    assert (
        "team@example.org"
        not in client.get(PAGE).content.decode().partition("Latest notifications")[0]
    )
    added(organization)
    kinds = (
        Entry.objects.filter(kind__startswith="admin.channel")
        .order_by("position")
        .values_list("kind", flat=True)
    )
    words = ["added", "changed", "changed", "removed", "added"]
    assert list(kinds) == [f"admin.channel_{word}" for word in words]


def test_a_test_goes_the_way_of_every_notification(organization: Organization) -> None:
    channel, client = added(organization), organization.client("administrator")
    answer = client.post(f"{PAGE}{channel.id}/test/", follow=True)
    assert "Test sent to" in answer.content.decode()
    notification = Notification.objects.get()
    assert (notification.topic, notification.state) == ("test", "due")


def test_a_channel_that_is_off_sends_no_test(organization: Organization) -> None:
    channel, client = added(organization), organization.client("administrator")
    client.post(f"{PAGE}{channel.id}/switch/")
    answer = client.post(f"{PAGE}{channel.id}/test/", follow=True)
    assert "is off. Turn it on first." in answer.content.decode()
    assert not Notification.objects.exists()
    assert not Entry.objects.filter(kind="admin.channel_tested").exists()


def test_the_secret_part_of_a_chat_s_address_is_shown_nowhere(organization: Organization) -> None:
    path = "services/T000/B000/abcdefghijklmnop"
    channel, client = (
        added(organization, "slack", f"https://hooks.example.org/{path}"),
        organization.client("administrator"),
    )
    for page in (PAGE, f"{PAGE}{channel.id}/"):
        text = client.get(page).content.decode()
        assert "hooks.example.org/…mnop" in text
        assert path not in text
    assert path not in Body.objects.get(entry__kind="admin.channel_added").text


@pytest.mark.parametrize("verb", ["", "switch/", "remove/", "test/"])
def test_a_channel_of_another_project_is_not_found(organization: Organization, verb: str) -> None:
    channel = added(organization)
    other = organization.client("neighbour")
    assert other.post(f"{PAGE}{channel.id}/{verb}", {"minimum_risk": "low"}).status_code == 404
    channel.refresh_from_db()
    assert (channel.enabled, channel.removed_at_us, channel.minimum_risk) == (True, None, "high")
    assert not Notification.objects.exists()


@pytest.mark.parametrize("role", ["viewer", "reviewer", "operator"])
def test_only_administrators_choose_recipients(organization: Organization, role: str) -> None:
    channel = added(organization)
    client = organization.client(role)
    assert client.get(PAGE).status_code == 403
    for verb in ("", "switch/", "remove/", "test/"):
        assert client.post(f"{PAGE}{channel.id}/{verb}", {"minimum_risk": "low"}).status_code == 403
    assert NotificationChannel.objects.get().enabled


def test_the_answer_of_a_receiver_is_shown_inert(organization: Organization) -> None:
    channel = added(organization)
    text = "<script>alert(1)</script>\u202e answered 500."
    Notification.objects.create(
        project=organization.project,
        channel=channel,
        topic="test",
        key="k",
        position=1,
        due_at_us=1,
        tries=1,
        last_error=text,
    )
    page = organization.client("administrator").get(PAGE).content.decode()
    assert "<script>alert" not in page
    assert "U+202E" in page
    assert "retrying" in page


@pytest.mark.parametrize("has_server", [False, True])
def test_mail_that_became_a_file_is_not_called_sent(
    organization: Organization, settings: Settings, tmp_path: Path, has_server: bool
) -> None:
    backend = "locmem" if has_server else "filebased"
    settings.EMAIL_BACKEND = f"django.core.mail.backends.{backend}.EmailBackend"
    settings.EMAIL_FILE_PATH = tmp_path
    channel = added(organization)
    client = organization.client("administrator")
    assert client.post(f"{PAGE}{channel.id}/test/").status_code == 302
    assert notifications.send_due_notifications() == 1
    assert len(list(tmp_path.iterdir())) == (0 if has_server else 1)
    settings.EMAIL_BACKEND = (
        "django.core.mail.backends.smtp.EmailBackend"  # a server that was added later
    )
    rows = client.get(PAGE).content.decode().partition("Latest notifications")[2]
    assert ("written to a file, no mail server is configured" in rows) is not has_server
    assert (">sent<" in rows) is has_server
    assert ('#ack"' in rows) is has_server
