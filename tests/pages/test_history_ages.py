"""Ages on pages as of a moment count from that moment."""

from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest
import time_machine
from django.conf import settings
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Page, expect

from journal.models import Entry
from ledger.models import Effect
from tests.approvals.conftest import inbox, quiet
from tests.approvals.inbox_scenario import InboxScenario

__all__ = ["inbox", "quiet"]
pytestmark = pytest.mark.django_db
PAST = datetime.now(UTC) - timedelta(days=2)
MOMENT = PAST + timedelta(minutes=3)


@pytest.fixture
def asof(inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the moment 3 minutes after two effects: one waits for approval, one runs."""
    with time_machine.travel(PAST):
        inbox.declare("file.read", "read", "read_only")
        inbox.plan(arguments={"ref": "main"})
        running = inbox.plan("running", tool="file.read", arguments={"n": 1})
        inbox.agent.dispatch(running)
    return (
        f"#{Entry.objects.latest('position').position}@{MOMENT.isoformat().replace('+00:00', 'Z')}"
    )


def pages(inbox: InboxScenario, asof: str) -> dict[str, str]:
    effect = Effect.objects.get(effect_key="running")
    pending = Effect.objects.get(permission="pending")
    then = f"?asof={quote(asof)}"
    lanes = f"{reverse('session_timeline', args=[effect.session_id])}{then}&view=lanes"
    return {
        "effect": reverse("effect", args=[effect.id]) + then,
        "session": reverse("session", args=[effect.session_id]) + then,
        "gate": reverse("gate_history", args=[inbox.gate({"id": str(pending.id)}).id]) + then,
        "lanes": lanes,
        **{
            query: f"{reverse('search')}?q={quote(f'{query} asof:{asof}')}"
            for query in (
                "effect",
                "session",
                "gate",
                "event",
                "effect tool:file.read",
                "effect tool:nothing",
            )
        },
    }


@pytest.fixture
def client(inbox: InboxScenario) -> Client:
    client = inbox.organization.client("reviewer")
    client.post(reverse("clock"), {"clock": "relative", "next": "/"})
    return client


def shown(client: Client, url: str) -> str:
    answer = client.get(url, follow=True)
    assert answer.status_code == 200, (url, answer.content.decode()[:2000])
    return unescape(answer.content.decode())


def test_every_page_as_of_a_moment_passes_the_moment_to_the_script(
    inbox: InboxScenario, client: Client, asof: str
) -> None:
    for name, url in pages(inbox, asof).items():
        main = shown(client, url).partition("<main")[2].partition("</main>")[0]
        (as_of,) = {part.partition('"')[0] for part in main.split('data-as-of="')[1:]}
        assert abs(datetime.fromisoformat(as_of) - MOMENT) < timedelta(milliseconds=1), name
    for url in (reverse("search"), reverse("sessions")):
        assert "data-as-of" not in shown(client, url)


@pytest.mark.browser
def test_ages_count_from_the_moment_that_the_page_shows(
    inbox: InboxScenario, client: Client, asof: str, browser_page: Page
) -> None:
    script = (settings.BASE_DIR / "static" / "gatebook.js").read_text()
    html: dict[str, Any] = {name: shown(client, url) for name, url in pages(inbox, asof).items()}
    now = shown(client, f"{reverse('search')}?q=tool:file.read")
    for name in ("effect", "session", "gate", "effect tool:file.read", "event"):
        browser_page.set_content(html[name])
        browser_page.add_script_tag(content=script)
        rows = "main .results tbody" if name in ("effect tool:file.read", "event") else "main"
        ages = browser_page.locator(f"{rows} time[datetime]:not([data-form=fixed])")
        expect(ages.first).to_have_text("3 min ago")
        words = set(ages.all_text_contents())
        assert not any(word.endswith(" d ago") for word in words), (name, words)
        assert PAST.strftime("%Y-%m-%d") in (
            browser_page.locator("main [data-form=fixed]").first.text_content() or ""
        )
    browser_page.set_content(now)
    browser_page.add_script_tag(content=script)
    expect(browser_page.locator("main .results tbody time[datetime]").first).to_have_text("2 d ago")
