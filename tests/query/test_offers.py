"""Every link and form that a page offers to a role is allowed to that role."""

import re
from collections import deque
from functools import cache
from html import unescape
from urllib.parse import urlsplit

import pytest
import time_machine
from django.test import Client
from django.urls import Resolver404, resolve

from accounts.models import ROLES
from ledger.models import Effect
from monitoring.stuck import sweeper
from tests.query.incident import Scenario

pytestmark = [pytest.mark.django_db, pytest.mark.once]
OFFERED = re.compile(
    r'<(a|form|button|div|span|section)\b[^>]*?\b(href|action|formaction|hx-get|hx-post)="([^"]*)"'
)
MOST = 400  # pages per role
EACH = 6  # pages per view
US = 1_000_000


@cache
def resolve_view(path: str) -> str | None:
    """Return the name of the view at a path, or None: every page repeats the links of the frame."""
    try:
        return resolve(path).view_name or path
    except Resolver404:
        return None


def crawl(client: Client) -> dict[str, tuple[str, str]]:
    """Return every URL that pages offer, with its view's name and the first page offering it.

    It reads `EACH` pages of a view.
    """
    waiting, seen = deque(["/"]), {"/"}
    offers: dict[str, tuple[str, str]] = {}
    read: dict[str, int] = {}
    while waiting and sum(read.values()) < MOST:
        path = waiting.popleft()
        answer = client.get(path, follow=True)
        if answer.status_code != 200 or not answer.get("Content-Type", "").startswith("text/html"):
            continue
        for tag, kind, raw in OFFERED.findall(answer.content.decode()):
            target = urlsplit(unescape(raw))
            if target.netloc or not target.path.startswith("/"):
                continue
            name = resolve_view(target.path)
            if name is None:
                continue
            offers.setdefault(target.path, (name, path))
            address = f"{target.path}?{target.query}" if target.query else target.path
            if tag == "a" and kind == "href" and address not in seen and read.get(name, 0) < EACH:
                seen.add(address)
                read[name] = read.get(name, 0) + 1
                waiting.append(address)
    return offers


@pytest.mark.matrix
@pytest.mark.parametrize("role", ROLES)
def test_no_page_offers_an_action_that_its_reader_may_not_take(
    scenario: Scenario, role: str
) -> None:
    late = Effect.objects.filter(state="dispatched").latest("dispatched_at_us")
    with time_machine.travel((late.dispatched_at_us or 0) / US + 48 * 3600, tick=True):
        sweeper.sweep_stuck()
        sweeper.sweep_stuck()
        client = scenario.inbox.organization.client(role)
        offers = crawl(client)
        board = client.get("/stuck/").content.decode()
    assert len({name for name, _ in offers.values()}) > 25, "the crawl reads most kinds of pages"
    assert "unknown" in board
    forbidden = {
        path: (name, page)
        for path, (name, page) in offers.items()
        if ROLES.index(getattr(resolve(path).func, "required_role", ROLES[0])) > ROLES.index(role)
    }
    assert forbidden == {}
