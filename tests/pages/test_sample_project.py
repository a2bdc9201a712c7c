"""The sample project: what it holds, that its journal is true, and that it goes away."""

import json
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db.models import Min
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Browser
from structlog.testing import capture_logs

from accounts.models import SAMPLE_IDS, Agent, AgentToken, Membership, Project
from accounts.projects import query_hidden_samples, query_samples
from approvals.models import Exemption, Gate, Vote
from db.clock import is_simulated, now_us
from investigation.query import execute
from journal import outbox
from journal.models import Body, Entry, Outbox
from ledger.models import Effect
from notifications import notifications
from pages.overview import data
from pages.overview.faults import Faults, load_faults
from pages.overview.live_sessions import SHOWN, LiveSession, LiveSessions, load_live_sessions
from pages.sample.sample_project import DAYS, find_samples, load_sample
from pages.timeline.lanes import choose_clock
from sessions.models import ENDED, Session
from tests.pages.linked_numbers import check_linked_numbers
from tests.pages.people import Organization
from tests.query.test_overview_numbers import list_numbers, read_board
from tests.rows_with_entries import close_accounts
from tests.visual.pictures import open_page
from tests.visual.sample import PageAddress

pytestmark = pytest.mark.django_db
DAY_US = 86_400_000_000
HEADER_PX = 40  # of one line
FOOTER_PX = 46  # of two lines: the ages of all jobs, and the version


def check_crowded_overview_fits(
    browser: Browser, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the overview with five requests, every kind of problem and four live sessions."""

    def load_every_kind(membership: Membership, *arguments: Any) -> Faults:
        faults = load_faults(membership, *arguments)
        kinds = ("unknown", "stalled", "raised", "alerts", "seal", "jobs")
        more = [replace(faults.rows[0], kind=kind, style="is-awaiting") for kind in kinds]
        return replace(faults, rows=[*faults.rows, *more][:7])

    def load_full_list(project: UUID, now: int) -> LiveSessions:
        session = Session.objects.filter(project=project).latest("opened_position")
        row = LiveSession(
            session.id,
            1,
            "Round fares",
            session.agent_id,
            "code-fixer",
            "running",
            "",
            now,
            0,
            "test.run",
            "",
            [3, 9],
        )
        return replace(load_live_sessions(project, now), rows=[row] * SHOWN, count=SHOWN + 1)

    with monkeypatch.context() as patched:
        patched.setattr(data, "load_faults", load_every_kind)
        patched.setattr(data, "load_live_sessions", load_full_list)
        board = read_board(client)
        assert board.count('class="live-ago"') == SHOWN
        assert f"{SHOWN} shown" in board
        assert board.count('class="due') >= 5
        assert "3 more kinds" in board
        check_overview_fits(browser, client)


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
        for header in page.locator(".block > header").all():
            box = header.bounding_box()
            assert box
            assert box["height"] <= HEADER_PX, header.text_content()
    assert bottom + padding + FOOTER_PX <= 800


def check_numbers(sample: Project, client: Client) -> None:
    """Check that every number finds its rows, whose times are made up."""
    call_command("update_search_index", verbosity=0)
    agents = Agent.objects.filter(project=sample, effects__isnull=False).distinct()
    pages = [
        *("/", "/?view=table", "/tools/"),
        *(reverse("agent", args=[agent.id]) for agent in agents),
    ]
    for url in pages:
        assert check_linked_numbers(client.get(url).text, sample), url
    board = read_board(client, "/?view=table")
    loop = " ".join(re.sub(r"<[^>]+>", "", board.partition('class="loops"')[2]).split())
    assert "12 × test.run by code-fixer" in loop.replace("\u202f", " ")
    for query, shown in list_numbers(board):
        compiled = execute.compile_query(query, sample, now_us())
        assert (query, execute.count_matches(compiled)) == (query, (shown, False))


def read_text(client: Client, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200, url
    page = answer.content.decode().partition("<main")[2].partition("</main>")[0]
    page = page.partition('<section class="section" id="facts"')[0]
    return unescape(" ".join(re.sub(r"<[^>]+>", "", page).split()))


def check_stories(sample: Project, client: Client) -> None:
    """Check the endings of the stories: one clock, ended sessions, answers that took time."""
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    effects, gates = Effect.objects.filter(project=sample), Gate.objects.filter(project=sample)
    denied = gates.filter(status="denied").earliest("opened_position")
    pages = [reverse("gate_people", args=[denied.id]), reverse("effect", args=[denied.effect_id])]
    for url in pages:
        text = read_text(client, url).partition("What people saw and did a view")[2]
        assert "Those are live customers." in text
        assert today not in text.partition("administrator")[0], url
    assert "after first seeing it" in text
    assert "Denied after 25 min." in read_text(client, reverse("gate", args=[denied.id]))
    request = gates.get(effect=effects.get(permission="bypassed"))
    acts_of_request = read_text(client, reverse("gate_people", args=[request.id]))
    assert "request cancelled The effect ran without approval." in acts_of_request
    assert ", this, 4 d ago." in read_text(client, reverse("gate", args=[request.id]))

    resolved = read_text(client, reverse("effect", args=[effects.get(resolution="happened").id]))
    acts = resolved.partition("What people saw and did a view")[2]
    assert "resolved the effect: it happened The bank's statement of today has it." in acts
    assert today not in resolved.partition("sample-olga: it happened")[2].partition("entry")[0]

    exempted = effects.get(permission_basis="exemption")
    exemption = Exemption.objects.get(project=sample)
    words = read_text(client, reverse("effect", args=[exempted.id]))
    assert f"used, exemption x_{exemption.opened_position} granted by sample-olga until" in words
    assert "The release train, OPS-71." in words

    # What a reviewer took is from their first view to their vote, and differs.
    taken = set()
    for vote in Vote.objects.filter(gate__in=gates):
        facts = json.loads(Entry.objects.get(position=vote.position).facts)
        taken.add(facts["at_us"] - facts["first_shown_us"])
    assert len(taken) > 2
    assert 20_000_000 <= min(taken) <= max(taken) <= 100_000_000
    still = Session.objects.filter(project=sample).exclude(status__in=ENDED)
    assert {gate.session_id for gate in gates.filter(status="pending")} < set(
        still.values_list("id", flat=True)
    )
    assert not still.filter(seen_at_us__lt=now_us() - DAY_US).exists()


@pytest.mark.browser
def test_a_sample_is_loaded_marked_and_removed(
    organization: Organization, browser: Browser, monkeypatch: pytest.MonkeyPatch
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
    assert "Open the sample project" in client.get(reverse("first_steps")).content.decode()
    client.post(reverse("load_sample"), {"do": "load"})  # opens the one that is there
    assert find_samples(person) == [sample]
    assert "Sample:" in client.get(reverse("inbox")).content.decode()
    check_stories(sample, client)
    # Its timelines show the made-up times, not the second in which they were written.
    session = Session.objects.filter(project=sample, title__contains="fails only").get()
    assert choose_clock("", [session]) == "agent"
    assert choose_clock("server", [session]) == "server"
    check_numbers(sample, client)
    check_overview_fits(browser, client)
    check_crowded_overview_fits(browser, client, monkeypatch)

    call_command("load_sample", unless_loaded=True)
    client.post(reverse("remove_sample"), {"do": "remove"})
    call_command("load_sample", unless_loaded=True)  # what was removed does not come back
    assert list(query_samples()) == [sample]
    assert "Load the sample project" in client.get(reverse("first_steps")).content.decode()
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
    close_accounts(User.objects.all())
    with pytest.raises(CommandError, match="Name a person with --administrator"):
        call_command("load_sample", unless_loaded=True)
    assert not query_samples().exists()


def test_only_samples_can_be_removed(organization: Organization) -> None:
    browser = organization.client("administrator")
    assert browser.post(reverse("remove_sample"), {"do": "remove"}).status_code == 404
    assert organization.client("operator").post(reverse("load_sample")).status_code == 403
    assert Project.objects.filter(pk=organization.project.pk, name="default").exists()
