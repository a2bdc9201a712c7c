"""A request that is open on a page: it polls for changes, and a late answer learns who decided."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from approvals.models import Gate
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import REASON, Reviewer, url_of

ASKS = re.compile(r'<div class="gate-box" hx-get="([^"]+)"')
HTMX = {"HX-Request": "true"}
MOST = 6  # queries of a poll that finds nothing new


def asks(rita: Reviewer, gate: Gate) -> str:
    """The URL that the page of a gate polls."""
    match = ASKS.search(rita.page(url_of(gate)))
    assert match, "the page does not ask"
    return match[1].replace("&amp;", "&")


def news(rita: Reviewer, url: str) -> Any:
    return rita.client.get(url, headers=HTMX)


def test_nothing_new_is_a_cheap_204(rita: Reviewer, gate: Gate) -> None:
    url = asks(rita, gate)
    with CaptureQueriesContext(connection) as queries:
        answer = news(rita, url)
    assert (answer.status_code, answer.content) == (204, b"")
    assert len(queries) <= MOST, [query["sql"] for query in queries]


@pytest.mark.parametrize(
    ("verb", "words"), [("deny", "sam denied this request"), ("approve", "sam approved this")]
)
def test_the_ruling_of_another_person_arrives_with_their_name(
    inbox: InboxScenario, rita: Reviewer, gate: Gate, verb: str, words: str
) -> None:
    url = asks(rita, gate)
    inbox.answer(gate, "sam", verb, "not before the review")
    answer = news(rita, url)
    assert answer.status_code == 200
    page = answer.content.decode()
    assert words in page
    assert "not before the review" in page
    assert "<time" in page.partition('class="ended"')[2]
    assert 'name="answer"' not in page
    again = ASKS.search(page)
    assert (again is None) is (verb == "deny")  # the page of an ended gate stops polling
    assert "<html" not in page


def test_a_vote_that_does_not_decide_arrives_with_a_fresh_form(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = inbox.gate(inbox.plan("two", tool="deploy", arguments={"version": "4"}))
    url = asks(rita, gate)
    inbox.answer(gate, "sam", "approve")
    page = news(rita, url).content.decode()
    assert "sam approved this request. 1 more approval is needed." in page
    assert 'name="answer"' in page
    token = re.search(r'name="seen" value="([^"]+)"', page)
    assert token
    assert rita.answer(gate, "approve", seen=token[1]).status_code == 302


def test_a_withdrawal_and_a_stop_arrive(inbox: InboxScenario, rita: Reviewer) -> None:
    planned = inbox.plan("gone")
    gate = inbox.gate(planned)
    url = asks(rita, gate)
    assert inbox.agent.post(f"/effects/{planned['id']}/supersede").status_code == 200
    assert "The effect was withdrawn." in news(rita, url).content.decode()
    other = inbox.gate(inbox.plan("stays"))
    url = asks(rita, other)
    stop = {"scope": "agent", "subject": other.agent_id.hex, "reason": "look first"}
    assert rita.client.post(reverse("stop"), stop).status_code == 302
    assert "Stopped." in news(rita, url).content.decode()


@pytest.mark.parametrize(("verb", "did"), [("deny", "denied"), ("approve", "approved")])
def test_a_late_answer_is_refused_with_decider_ruling_and_time(
    inbox: InboxScenario, rita: Reviewer, gate: Gate, verb: str, did: str
) -> None:
    seen = rita.seen(gate)
    inbox.answer(gate, "sam", verb)
    answer = rita.answer(gate, "deny", REASON, seen=seen)
    assert answer.status_code == 409
    message = re.sub(
        r"\s+", " ", answer.content.decode().partition('role="alert"')[2].partition("</div>")[0]
    )
    assert re.search(rf"sam {did} this request \d+ (s|min) ago", message), message
