"""The sample project: what it holds, that its journal is true, and that it goes away."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db.models import Min
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Browser
from structlog.testing import capture_logs

from accounts.models import SAMPLE_IDS, AgentToken, Membership, Project
from accounts.projects import query_hidden_samples, query_samples
from approvals.models import Gate
from db.clock import is_simulated, now_us
from journal import outbox
from journal.models import Body, Entry, Outbox
from ledger.models import Effect
from notifications import notifications
from pages.sample.sample_project import DAYS, find_samples, load_sample
from pages.timeline.lanes import parse_clock
from sessions.models import Session
from tests.pages.people import Organization
from tests.visual.pictures import open_page
from tests.visual.sample import PageAddress

pytestmark = pytest.mark.django_db
DAY_US = 86_400_000_000
FOOTER_PX = 46  # of two lines: the ages of all jobs, and the version


def check_overview_fits(browser: Browser, client: Client) -> None:
    """Check that the overview needs no scrolling at 1280 x 800."""
    address = PageAddress("overview", "administrator", reverse("home"))
    with open_page(browser, client, address, 1280, datetime.now(UTC)) as page:
        page.set_viewport_size({"width": 1280, "height": 800})
        bottom = page.evaluate(
            "() => document.querySelector('main > .sheet').lastElementChild"
            ".getBoundingClientRect().bottom"
        )
        padding = page.evaluate(
            "() => parseFloat(getComputedStyle(document.querySelector('main > .sheet'))"
            ".paddingBottom)"
        )
    assert bottom + padding + FOOTER_PX <= 800


@pytest.mark.browser
def test_a_sample_is_loaded_marked_and_removed(
    organization: Organization, browser: Browser
) -> None:
    began = now_us()
    person = User.objects.get(username="administrator")
    sample = load_sample(person, routine_days=1)
    assert not is_simulated()
    assert sample.id.int in SAMPLE_IDS
    assert not organization.project.is_sample

    # What it shows is two weeks old; the journal says when it was written.
    effects = Effect.objects.filter(project=sample)
    first = effects.aggregate(at=Min("received_us"))["at"]
    assert began - (DAYS + 1) * DAY_US < first < began - (DAYS - 2) * DAY_US
    written = Entry.objects.filter(project=sample.id)
    assert written.aggregate(at=Min("received_us"))["at"] >= began
    assert written.aggregate(at=Min("occurred_us"))["at"] < began - (DAYS - 2) * DAY_US

    statuses = Counter(Gate.objects.filter(project=sample).values_list("status", flat=True))
    assert {"used", "denied", "expired", "pending"} <= statuses.keys()
    assert statuses["pending"] == 5
    assert effects.filter(permission="bypassed").count() == 1
    assert effects.filter(permission_basis="exemption").count() == 1
    assert effects.exclude(resolved_mark="").count() == 1
    assert not AgentToken.objects.filter(project=sample, revoked_at=None).exists()

    # Its problems are made up: the log of the installation has no line of them.
    with capture_logs() as lines:
        assert outbox.deliver_due()
    assert lines == []
    row = Outbox.objects.filter(project=sample.id, topic="integrity").latest("id")
    with capture_logs() as lines:
        notifications.log_for_operator(Outbox(project=organization.project.pk), row.topic)
    assert [line["event"] for line in lines] == ["integrity"]

    client = organization.client("administrator")
    assert "Sample:" not in client.get(reverse("sessions")).content.decode()
    client.post(reverse("load_sample"), {"do": "load"})  # opens the one that is there
    assert find_samples(person) == [sample]
    assert "Sample:" in client.get(reverse("inbox")).content.decode()
    # Its timelines show the made-up times, not the second in which they were written.
    session = Session.objects.filter(project=sample, title__contains="fails only").get()
    assert parse_clock({}, session) == "agent"
    assert parse_clock({"clock": "server"}, session) == "server"
    check_overview_fits(browser, client)

    call_command("load_sample", unless_loaded=True)
    client.post(reverse("remove_sample"), {"do": "remove"})
    call_command("load_sample", unless_loaded=True)  # what was removed does not come back
    assert list(query_samples()) == [sample]
    assert not Membership.objects.filter(project=sample).exists()
    assert list(query_hidden_samples()) == [sample]
    left = Body.objects.filter(entry__project=sample.id).exclude(
        entry__kind__in=("erasure.executed",)
    )
    assert not left.exists()
    assert written.count() > effects.count()


def test_the_command_says_whom_it_needs(organization: Organization) -> None:
    with pytest.raises(CommandError, match="There is no person called 'nobody'"):
        call_command("load_sample", administrator="nobody")
    User.objects.update(is_active=False)
    with pytest.raises(CommandError, match="Name a person with --administrator"):
        call_command("load_sample", unless_loaded=True)
    assert not query_samples().exists()


def test_only_samples_can_be_removed(organization: Organization) -> None:
    browser = organization.client("administrator")
    assert browser.post(reverse("remove_sample"), {"do": "remove"}).status_code == 404
    assert organization.client("operator").post(reverse("load_sample")).status_code == 403
    assert Project.objects.filter(pk=organization.project.pk, name="default").exists()
