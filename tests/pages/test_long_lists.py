"""Lists of people and tokens: fifty rows per page, each row on one page."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts import agents, tokens
from accounts.models import Membership, Repository
from accounts.views import repositories
from tests.pages.people import Organization
from tests.rows_with_entries import add_rows

TOKENS, PEOPLE = "/settings/tokens/", "/settings/people/"


def fill_people(organization: Organization, number: int) -> None:
    users = User.objects.bulk_create([User(username=f"person-{n:03}") for n in range(number)])
    add_rows(Membership(project=organization.project, user=user, role="viewer") for user in users)


def fill_tokens(organization: Organization, number: int) -> None:
    for n in range(number):
        agent = agents.ensure_agent(organization.project, f"agent-{n // 3:03}")
        if n % 3:
            tokens.issue_token(agent, expires_in=None, actor="tests")


@pytest.mark.parametrize(
    ("page", "fill"), [(PEOPLE, fill_people), (TOKENS, fill_tokens)], ids=["people", "tokens"]
)
def test_every_row_is_on_one_page_and_pages_cost_the_same(
    organization: Organization, page: str, fill: Callable[[Organization, int], Any]
) -> None:
    client = organization.client("administrator")
    client.get(page)
    with CaptureQueriesContext(connection) as few:
        client.get(page)
    fill(organization, 120)
    names: list[str] = []
    number = 1
    with CaptureQueriesContext(connection) as many:
        first = client.get(page).text
    assert len(many) == len(few)
    assert 'rel="prev"' not in first
    while True:
        text = client.get(f"{page}?page={number}").text
        rows = re.findall(r"<code>(gbk_\w+|p_\w+)?</code>|class=\"quiet\">none</span>", text)
        assert 0 < len(rows) <= 50
        names += rows
        if 'rel="next"' not in text:
            break
        number += 1
    assert number > 1
    expected = (
        organization.project.memberships.count()
        if page == PEOPLE
        else organization.project.tokens.count()
    )
    assert len(names) >= expected
    assert client.get(f"{page}?page=9999").text.count("<tr") == text.count("<tr")
    assert client.get(f"{page}?page=nonsense").status_code == 200


def test_an_agent_without_a_token_is_in_the_list(organization: Organization) -> None:
    agents.ensure_agent(organization.project, "idle")
    text = organization.client("administrator").get(TOKENS).text
    assert re.search(
        r"idle</\w+></a>\s*<a [^<]*<span[^<]*<span[^<]*</span></span>\s*</a>\s*</th>"
        r'\s*<td[^\n]*\s*<td[^\n]*colspan="7"><span class="quiet">none',
        text,
    )
    assert text.count(f"gbk_{organization.token.public_id}</code>") == 1
    assert organization.other_token.public_id not in text


def test_the_list_of_repositories_shows_where_it_is_cut(
    organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repositories, "SHOWN", 3)
    client = organization.client("administrator")
    Repository.objects.bulk_create(
        [Repository(project=organization.project, name=f"lib-{n}") for n in range(2)]
    )
    assert "are shown" not in client.get("/settings/repositories/").content.decode()
    Repository.objects.create(project=organization.project, name="lib-2")
    page = client.get("/settings/repositories/").content.decode()
    assert "The first 3 by name are shown." in page
    assert "lib-2" in page
    assert ">web<" not in page
