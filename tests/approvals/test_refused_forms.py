"""After a refused form its address leads to a page that contains the typed text."""

import html

import pytest
from django.urls import reverse

from approvals.models import Gate
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of

WORDS = "half a thought & no ticket"


def shows(page: str) -> bool:
    return html.escape(WORDS) in page


def test_the_address_of_a_refused_answer_leads_to_the_request_with_the_reason(
    rita: Reviewer, gate: Gate
) -> None:
    answer = rita.answer(gate, "deny", WORDS, seen="stale")
    assert answer.status_code == 409
    assert shows(answer.content.decode())
    back = rita.client.get(reverse("gate_vote", args=[gate.id]))
    assert (back.status_code, back["Location"]) == (302, url_of(gate))
    assert shows(rita.page(url_of(gate)).partition('id="reason"')[2].partition("</textarea>")[0])
    clock = {"clock": "local", "next": reverse("gate_vote", args=[gate.id])}
    switched = rita.client.post(reverse("clock"), clock, follow=True)
    assert switched.status_code == 200
    assert shows(switched.content.decode())


def test_text_on_a_request_decided_by_another_person_stays_on_its_page(
    inbox: InboxScenario, rita: Reviewer, gate: Gate
) -> None:
    seen = rita.seen(gate)
    inbox.answer(gate, "sam", "deny")
    assert rita.answer(gate, "approve", WORDS, seen=seen).status_code == 409
    page = rita.page(url_of(gate))
    assert "Your draft reason" in page
    assert shows(page)
    assert shows(rita.page(url_of(gate)))  # as often as it is loaded
    assert not shows(Reviewer(inbox, "administrator").page(url_of(gate)))


def test_a_recorded_answer_deletes_its_draft(rita: Reviewer, gate: Gate) -> None:
    rita.answer(gate, "deny", WORDS, seen="stale")
    assert rita.answer(gate, "deny", "agreed in INC-204").status_code == 302
    assert not shows(rita.page(url_of(gate)))


def test_the_reason_of_a_refused_revocation_is_kept(
    inbox: InboxScenario, rita: Reviewer, gate: Gate
) -> None:
    inbox.answer(gate, "sam", "approve")
    url = reverse("gate_revoke", args=[gate.id])
    assert rita.client.post(url, {"reason": "x"}).status_code == 409
    assert ">x</textarea>" in rita.page(url)
    assert rita.client.post(url, {"reason": "asked for by mistake"}).status_code == 302
    assert "Your draft reason" not in rita.page(url_of(gate))


@pytest.mark.parametrize("url_name", ["gate_vote", "gate_extend"])
def test_the_addresses_of_answers_lead_to_the_request(
    rita: Reviewer, gate: Gate, url_name: str
) -> None:
    url = reverse(url_name, args=[gate.id])
    assert rita.client.get(url)["Location"] == url_of(gate)
    assert rita.client.put(url).status_code == 405


def test_a_get_of_any_other_form_address_explains_itself(rita: Reviewer) -> None:
    page = rita.page(reverse("clock"), status=405)
    assert "This address only accepts a form" in page
    assert 'aria-label="Main"' in page
    assert rita.client.get(reverse("clock"))["Allow"] == "POST"
