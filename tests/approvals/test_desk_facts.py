"""What the desk says of a request beside its arguments: whose word its place is, what is like it, what is around it."""

import re
from html import unescape
from typing import Any

import pytest
from django.db import transaction
from django.urls import reverse

from approvals.templatetags.desk import place
from sessions import agents
from tests.approvals.reviewer import Reviewer, url_of
from tests.approvals.story import Desk
from tests.approvals.test_desk_flags import ask
from tests.pages.book import doors


def plainly(html: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html))).strip()


@pytest.mark.parametrize(
    ("environment", "ref_class", "stamped", "said"),
    [
        ("production", "", True, "production"),
        ("eu-prd", "other", True, "eu-prd"),
        ("staging", "", False, "says staging"),
        ("staging", "protected", False, "says staging"),
        ("staging", "production", True, "production says staging"),
        ("", "production", True, "production"),
        ("", "", False, ""),
        ("<b>prod</b>ish", "", False, "says <b>prod</b>ish"),
    ],
)
def test_only_production_is_stamped_and_every_other_place_is_the_agents_word(
    environment: str, ref_class: str, stamped: bool, said: str
) -> None:
    shown = place(environment, ref_class)
    assert ("is-prod" in shown) is stamped
    assert ('class="env' in shown) is stamped
    assert plainly(shown) == said


def test_a_place_is_the_agents_word_wherever_it_stands(desk: Desk, rita: Reviewer) -> None:
    gate = ask(desk, "s-1", target={"repository": "web", "environment": "staging"})
    pages = [reverse("inbox"), url_of(gate), reverse("effect", args=[gate.effect_id])]
    for html in map(rita.page, pages):
        assert "says <span" in html
        assert 'class="env' not in html


def test_only_requests_of_one_agent_in_one_repository_are_folded(desk: Desk, rita: Reviewer) -> None:
    desk.declare("close", "reversible")
    ask(desk, "s-1", tool="close", target={"repository": "web"}, arguments={"issue": 1})
    ask(desk, "s-2", tool="close", target={"repository": "web"}, arguments={"issue": 2})
    ask(desk, "s-3", tool="close", target={"repository": "api"}, arguments={"issue": 3})
    with transaction.atomic():
        other = agents.ensure(desk.project, "ops-4", None)
    with doors(other) as caller:
        ask(Desk(desk.house, caller), "s-4", tool="close", target={"repository": "web"}, arguments={"issue": 4})
    html = rita.page(reverse("inbox"))
    assert html.count("more of the same shape") == 1
    assert "1 more of the same shape" in html


def test_the_claim_stands_where_requests_are_decided_together(desk: Desk, rita: Reviewer) -> None:
    desk.declare("close", "reversible")
    same: dict[str, Any] = {"tool": "close", "target": {"repository": "web"}}
    both = [ask(desk, "s-1", **same, why="Nobody <i>wants</i> it."), ask(desk, "s-2", **same, arguments={"issue": 7})]
    rita.client.post(reverse("batch"), {"gate": [str(one.id) for one in both]})
    html = rita.page(reverse("batch_confirm"))
    assert html.count("Agent’s claim, unverified") == 2
    assert "Nobody &lt;i&gt;wants&lt;/i&gt; it." in html
    assert "none was sent" in html
