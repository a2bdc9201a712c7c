"""The counts of the frame: every page polls for them cheaply, and polling does not keep a sign-in
alive."""

import re
import time

import pytest
import time_machine
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.approvals.inbox_scenario import Desk
from tests.pages.people import House
from tests.pages.sample_data import HOUSES_TOKEN, doors

POLL = re.compile(r'<nav class="rail" id="rail"[^>]* hx-get="([^"]+)"')
MOST = 4  # queries of a poll without news
RULES = "name: n\nrules:\n- {id: p, title: P, match: {tools: [git.push]}, outcome: require}\n"


def poll(client: Client, url: str) -> tuple[str, dict[str, dict[str, str]]]:
    """What a page asks for, and the header that tells the server which page asks."""
    found = POLL.search(client.get(url).content.decode())
    assert found, f"{url} does not poll"
    headers = {"HX-Request": "true", "HX-Current-URL": f"http://testserver{url}"}
    return found[1].replace("&amp;", "&"), {"headers": headers}


@pytest.mark.parametrize(
    "url", ["/tools/", "/settings/appearance/", "/sessions/", "/approvals/", "/stuck/"]
)
def test_every_page_learns_of_a_new_request_and_pays_little_for_nothing_new(
    house: House, url: str
) -> None:
    client = house.client("viewer")
    asked, more = poll(client, url)
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(asked, **more)  # type: ignore[arg-type]
    assert (answer.status_code, answer.content) == (204, b"")
    assert len(queries) <= MOST, [one["sql"] for one in queries]
    with doors(house.agent, kept=HOUSES_TOKEN) as agent:
        Desk(house, agent).rules(RULES)
        agent.session("s-1")
        agent.plan("e-1")
    rail = client.get(asked, **more).content.decode()  # type: ignore[arg-type]
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


def test_polling_does_not_keep_a_sign_in_alive(house: House) -> None:
    client = house.client("viewer")
    asked, more = poll(client, "/tools/")
    began = time.time()
    for minutes in range(5, 45, 5):
        with time_machine.travel(began + minutes * 60, tick=False):
            status = client.get(asked, **more).status_code  # type: ignore[arg-type]
        assert (status in (200, 204)) == (minutes * 60 <= settings.SIGN_IN_IDLE_S), minutes


@pytest.mark.django_db
def test_strangers_are_sent_to_sign_in() -> None:
    assert Client().get(reverse("counts"))["Location"].startswith("/sign-in/")
