"""Absence with a stand-in, and the daily digest."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.core import mail
from django.urls import reverse

from approvals.gates.statuses import US
from approvals.inbox import inbox_queries
from approvals.inbox.inbox_queries import ListFilters
from approvals.models import Addressee, Gate, ReviewSettings
from db.clock import now_us
from journal.models import Entry
from notifications import daily_digest
from notifications.models import Notification, NotificationChannel
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.notification_helpers import _outside as _outside
from tests.approvals.notification_helpers import add_full_channel as add_full_channel
from tests.approvals.notification_helpers import tick
from tests.approvals.reviewer import Reviewer, url_of

pytestmark = pytest.mark.django_db
PAGE = "/settings/reviewing/"


def store(person: Reviewer, form: str, status: int = 302, **fields: str) -> str:
    """Send a form of the settings page; return its text."""
    answer = person.client.post(PAGE, {"form": form, **fields})
    assert answer.status_code == status, answer.content
    return answer.content.decode()


def go_away(inbox: InboxScenario, name: str, stand_in: str = "") -> None:
    """Let a person be away from today until in two days."""
    today = datetime.fromtimestamp(now_us() / US, UTC).date()
    days = {"first": str(today), "last": str(today + timedelta(days=2))}
    store(Reviewer(inbox, name), "absence", 302, **days, stand_in=stand_in)


def is_queued(inbox: InboxScenario, name: str, gate: Gate) -> bool:
    page = inbox_queries.load_inbox_page(inbox.person(name), ListFilters("mine"))
    return gate.id in [row.gate.id for row in page.rows]


def test_what_is_assigned_to_an_absent_person_goes_to_the_stand_in(
    inbox: InboxScenario, rita: Reviewer, gate: Gate
) -> None:
    inbox.person("grace")
    inbox.person("ada")
    rita.client.post(reverse("gate_assign", args=[gate.id]), {"to": "ada"})
    assert [is_queued(inbox, name, gate) for name in ("ada", "grace")] == [True, False]
    go_away(inbox, "ada")
    assert [is_queued(inbox, name, gate) for name in ("reviewer", "grace")] == [True, True]
    go_away(inbox, "ada", "grace")
    assert [is_queued(inbox, name, gate) for name in ("reviewer", "grace")] == [False, True]
    assert "grace stands in." in rita.page(url_of(gate))
    rita.client.post(reverse("gate_assign", args=[gate.id]), {"to": ""})
    rita.client.post(reverse("gate_assign", args=[gate.id]), {"to": "ada"})
    assert Addressee.objects.get().user.get_username() == "grace"
    # Who may approve did not change.
    assert inbox.answer(gate, "ada").refusal is None


def test_nobody_is_assigned_a_request_while_away_without_a_stand_in(
    inbox: InboxScenario, rita: Reviewer, gate: Gate
) -> None:
    inbox.person("ada")
    go_away(inbox, "ada")
    answer = rita.client.post(
        reverse("gate_assign", args=[gate.id]), {"to": "ada"}, follow=True
    ).content.decode()
    assert "ada is away until" in answer
    assert "Assign it to somebody else." in answer
    assert not Addressee.objects.exists()
    store(Reviewer(inbox, "ada"), "absence", first="", last="", stand_in="")
    rita.client.post(reverse("gate_assign", args=[gate.id]), {"to": "ada"})
    assert Addressee.objects.count() == 1
    assert Entry.objects.filter(kind="admin.absence_changed").count() == 2


def test_mail_goes_to_the_stand_in(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel]
) -> None:
    for name in ("ada", "grace"):
        user, alone = inbox.person(name).user, name == "ada"
        add_full_channel(
            target=f"{name}@example.org", person=user, requests=alone, minimum_risk="low"
        )
    go_away(inbox, "ada", "grace")
    inbox.plan()
    tick()
    written = Notification.objects.filter(topic="gate.requested")
    assert [row.channel.target for row in written] == ["grace@example.org"]


@pytest.mark.parametrize(
    ("first", "last", "stand_in", "sentence"),
    [
        ("2030-01-05", "", "", "Give both days, or neither."),
        ("2030-01-05", "2030-01-04", "", "The last day is before the first one"),
        ("2020-01-05", "2020-01-08", "", "The last day is over."),
        ("2030-01-05", "2030-01-06", "viewer", "Select a valid choice."),
        ("2030-01-05", "2030-01-06", "reviewer", "Select a valid choice."),
    ],
)
def test_a_wrong_absence_is_refused(
    rita: Reviewer, first: str, last: str, stand_in: str, sentence: str
) -> None:
    fields = {"first": first, "last": last, "stand_in": stand_in}
    assert sentence in store(rita, "absence", 422, **fields)
    assert not ReviewSettings.objects.filter(away_from_us__isnull=False).exists()


def test_a_digest_names_what_waits_and_what_was_decided(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    assert "Give the address" in store(rita, "digest", 422, hour="7", address="")
    store(rita, "digest", hour="7", address="rita@example.org")
    stored = ReviewSettings.objects.get()
    assert stored.digest_sent_us is not None
    midnight = stored.digest_sent_us - stored.digest_sent_us % (86_400 * US)
    tomorrow = midnight + 31 * 3600 * US  # 07:00 of the next day
    with time_machine.travel((tomorrow - 60 * US) / US, tick=False):
        gates = [inbox.gate(inbox.plan(f"e-{n}", arguments={"ref": f"r{n}"})) for n in range(2)]
        inbox.answer(gates[0], "administrator", "deny")
        ReviewSettings.objects.update(digest_sent_us=now_us() - 60 * US)
        assert daily_digest.send_due_digests(now_us()) == 0  # not yet
    with time_machine.travel(tomorrow / US + 1, tick=False):
        assert daily_digest.send_due_digests(now_us()) == 1
        assert daily_digest.send_due_digests(now_us()) == 0
    (sent,) = mail.outbox
    assert sent.to == ["rita@example.org"]
    assert sent.subject == "Gatebook: 1 waiting for you, 0 expired, 1 decided"
    assert f"/approvals/{gates[1].id}/" in sent.body
    assert "1 denied" in sent.body
    assert PAGE in sent.body
    inbox.answer(gates[1], "administrator")
    with time_machine.travel((tomorrow + 86_400 * US) / US + 1, tick=False):
        daily_digest.send_due_digests(now_us())
    mail.outbox.clear()
    with time_machine.travel((tomorrow + 3 * 86_400 * US) / US + 1, tick=False):
        assert daily_digest.send_due_digests(now_us()) == 0  # nothing happened
    assert mail.outbox == []
    store(rita, "digest", hour="", address="")
    assert ReviewSettings.objects.get().digest_address == ""
