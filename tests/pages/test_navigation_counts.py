"""Counts of the layout: every page polls cheaply, and polling does not extend a sign-in."""

import re
import time

import pytest
import time_machine
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization
from tests.pages.sample_data import ORGANIZATIONS_TOKEN, connect_agent

POLL = re.compile(r'<nav class="rail" id="rail"[^>]* hx-get="([^"]+)"')
MOST = 4  # queries of a poll without changes
RULES = "name: n\nrules:\n- {id: p, title: P, match: {tools: [git.push]}, outcome: require}\n"


def poll(client: Client, url: str) -> tuple[str, dict[str, dict[str, str]]]:
    """Return the URL that a page polls, and the headers that name the page."""
    match = POLL.search(client.get(url).content.decode())
    assert match, f"{url} does not poll"
    headers = {"HX-Request": "true", "HX-Current-URL": f"http://testserver{url}"}
    return match[1].replace("&amp;", "&"), {"headers": headers}


@pytest.mark.parametrize(
    "url", ["/tools/", "/settings/appearance/", "/sessions/", "/approvals/", "/stuck/"]
)
def test_every_page_polls_for_new_requests_cheaply(organization: Organization, url: str) -> None:
    client = organization.client("viewer")
    poll_url, more = poll(client, url)
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(poll_url, **more)  # type: ignore[arg-type]
    assert (answer.status_code, answer.content) == (204, b"")
    assert len(queries) <= MOST, [query["sql"] for query in queries]
    with connect_agent(organization.agent, kept=ORGANIZATIONS_TOKEN) as agent:
        InboxScenario(organization, agent).rules(RULES)
        agent.session("s-1")
        agent.plan("e-1")
    rail = client.get(poll_url, **more).content.decode()  # type: ignore[arg-type]
    assert 'data-waiting="1"' in rail
    assert re.search(rf'href="{re.escape(url)}"\s+aria-current="page"', rail) or url.startswith(
        "/settings/"
    )
    assert "<html" not in rail
    again = POLL.search(rail)
    assert again
    assert client.get(again[1].replace("&amp;", "&"), **more).status_code == 204  # type: ignore[arg-type]
    title = re.search(r"<title>(.*?)</title>", client.get(url).content.decode())
    assert title
    assert title[1].startswith("(1) ")
    assert title[1].count("(") == 1 or not title[1].startswith("(1) (")


def test_polling_does_not_extend_a_sign_in(organization: Organization) -> None:
    began = time.time()
    with time_machine.travel(began, tick=False):
        client = organization.client("viewer")
        poll_url, more = poll(client, "/tools/")
    for minutes in range(5, 45, 5):
        with time_machine.travel(began + minutes * 60, tick=False):
            status = client.get(poll_url, **more).status_code  # type: ignore[arg-type]
        assert (status in (200, 204)) == (minutes * 60 <= settings.SIGN_IN_IDLE_S), minutes


@pytest.mark.django_db
def test_signed_out_people_are_redirected_to_sign_in() -> None:
    assert Client().get(reverse("counts"))["Location"].startswith("/sign-in/")
