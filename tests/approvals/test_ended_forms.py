"""A request that ends while its form is open: its page says so, names the successor, asks nothing."""

from typing import Any

import pytest
from django.urls import reverse

from approvals.models import Gate, Vote
from approvals.review.changed_requests import find_successor
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.approvals.test_inbox_facts import plainly
from tests.pages.people import PASSWORD

pytestmark = pytest.mark.django_db
REAUTH = RULES.replace("{minimum: 1, rationale", "{step_up: reauth, minimum: 1, rationale")
TARGET: dict[str, Any] = {"target": {"repository": "web", "ref": "topic"}}


def poll(rita: Reviewer, gate: Gate) -> Any:
    url = reverse("gate_confirm", args=[gate.id])
    return rita.client.get(url, {"since": "1"}, headers={"hx-request": "true"})


def withdraw(inbox: InboxScenario, gate: Gate) -> None:
    assert inbox.agent.post(f"/effects/{gate.effect_id}/supersede").status_code == 200


@pytest.fixture
def open_form(inbox: InboxScenario, rita: Reviewer) -> Gate:
    """A request whose confirm page, with a password field, is open."""
    inbox.rules(REAUTH)
    gate = inbox.gate(inbox.plan(arguments={"refspec": "a:topic"}, **TARGET))
    rita.answer(gate)
    assert 'name="password"' in rita.page(reverse("gate_confirm", args=[gate.id]))
    return gate


def test_an_open_confirm_page_says_at_once_that_its_request_ended(
    inbox: InboxScenario, rita: Reviewer, open_form: Gate
) -> None:
    html = rita.page(reverse("gate_confirm", args=[open_form.id]))
    assert f'hx-get="{reverse("gate_confirm", args=[open_form.id])}?since=' in html
    assert poll(rita, open_form).status_code == 204
    withdraw(inbox, open_form)
    newer = inbox.gate(inbox.plan("e-2", arguments={"refspec": "b:topic"}, **TARGET))
    answer = poll(rita, open_form)
    assert answer.status_code == 200
    fragment = answer.content.decode()
    assert "Your answer was not recorded." in fragment
    assert "cancelled" in fragment
    assert "<input" not in fragment  # the fields are gone
    assert "hx-get" not in fragment  # and nothing polls any more
    text = plainly(fragment)
    assert f"Newer request for the same target, with other arguments: {newer}" in text
    assert url_of(newer) in fragment


def test_a_form_sent_after_the_end_is_refused_before_its_password_is_read(
    inbox: InboxScenario, rita: Reviewer, open_form: Gate
) -> None:
    shown = rita.draft(open_form)
    withdraw(inbox, open_form)
    newer = inbox.gate(inbox.plan("e-2", arguments={"refspec": "a:topic"}, **TARGET))
    url = reverse("gate_confirm", args=[open_form.id])
    for _ in range(6):  # five wrong passwords would lock the sign-in
        answer = rita.client.post(url, {"seen_draft": shown, "password": "wrong"})
        assert answer.status_code == 409
    html = answer.content.decode()
    assert 'type="password"' not in html
    assert f"Newer request for the same call: {newer}" in plainly(html)
    assert not Vote.objects.exists()
    rita.answer(newer)
    assert rita.confirm(newer, password=PASSWORD).status_code == 302


def test_the_poll_of_a_confirm_page_notices_a_draft_answered_elsewhere(
    rita: Reviewer, open_form: Gate
) -> None:
    assert rita.confirm(open_form, password=PASSWORD).status_code == 302
    fragment = poll(rita, open_form).content.decode()
    assert "already submitted or discarded in another tab" in fragment
    assert "<input" not in fragment


def test_the_successor_is_the_newer_request_of_the_same_effect(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    inbox.answer(gate, "reviewer", "request_changes", "smaller steps")
    inbox.plan()
    newer = inbox.gate(planned)
    assert newer.id != gate.id
    successor = find_successor(Gate.objects.get(id=gate.id))
    assert successor is not None
    assert (successor.gate, successor.tie) == (newer.id, "of the same effect")


def test_another_target_or_tool_is_no_successor(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan(arguments={"refspec": "a:topic"}, **TARGET))
    withdraw(inbox, gate)
    inbox.plan("e-2", target={"repository": "web", "ref": "elsewhere"}, arguments={"a": 1})
    inbox.plan("e-3", tool="deploy", arguments={"refspec": "a:topic"}, **TARGET)
    assert find_successor(Gate.objects.get(id=gate.id)) is None


def test_a_waiting_successor_comes_before_a_newer_one_that_ended(inbox: InboxScenario) -> None:
    gate, waiting, ended = (
        inbox.gate(inbox.plan(f"e-{n}", arguments={"n": n}, **TARGET)) for n in range(3)
    )
    withdraw(inbox, gate)
    withdraw(inbox, ended)
    successor = find_successor(Gate.objects.get(id=gate.id))
    assert successor is not None
    assert str(successor) == str(waiting)


def test_requests_without_a_target_share_none(inbox: InboxScenario, rita: Reviewer) -> None:
    inbox.declare("mail.send", "reversible")
    first, last = (
        inbox.gate(inbox.plan(f"e-{n}", tool="mail.send", arguments={"to": n})) for n in range(2)
    )
    withdraw(inbox, first)
    text = plainly(rita.page(url_of(first)))
    assert f"Newer request of the same tool in this session, with other arguments: {last}" in text
    assert "Newer request" not in rita.page(url_of(last))


def test_a_page_of_several_requests_hears_of_those_that_ended(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.declare("note.write", "reversible")
    rules = RULES + "  - {id: note, title: N, match: {tools: [note.write]}, outcome: require}\n"
    inbox.rules(rules)
    gates = [
        inbox.gate(inbox.plan(f"e-{n}", tool="note.write", arguments={"n": n})) for n in range(2)
    ]
    rita.client.post(reverse("batch"), {"gate": [str(gate.id) for gate in gates]})
    page = rita.page(reverse("batch_confirm"))
    ids = [str(gate.id) for gate in gates]
    assert f'{reverse("ended_requests")}?gate={ids[0]}&amp;gate={ids[1]}"' in page
    query = {"gate": [*ids, "no id"]}
    assert rita.client.get(reverse("ended_requests"), query).status_code == 204
    withdraw(inbox, gates[0])
    answer = rita.client.get(reverse("ended_requests"), query)
    text = plainly(answer.content.decode())
    assert "1 of these requests ended. An answer that includes it is refused." in text
    assert f"{gates[0]} : This request was cancelled" in text
    assert str(gates[1]) in text  # the next one of the session


def test_the_poll_of_several_requests_is_for_reviewers(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = inbox.gate(inbox.plan())
    withdraw(inbox, gate)
    assert rita.client.get(reverse("ended_requests"), {"gate": str(gate.id)}).status_code == 200
    viewer = inbox.organization.client("viewer")
    assert viewer.get(reverse("ended_requests"), {"gate": str(gate.id)}).status_code == 403
