"""Comments on a request, mentions, assignment, and the queue of one person."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core import mail
from django.db import transaction
from django.urls import reverse

from approvals.inbox import inbox_queries
from approvals.inbox.inbox_queries import ListFilters
from approvals.models import Addressee, Gate
from db.clock import now_us
from journal import erasures
from journal.models import Body, Entry
from notifications.models import Notification, NotificationChannel
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.notification_helpers import _outside as _outside
from tests.approvals.notification_helpers import add_full_channel as add_full_channel
from tests.approvals.notification_helpers import tick
from tests.approvals.reviewer import Reviewer, url_of

pytestmark = pytest.mark.django_db


def send(person: Reviewer, name: str, gate: Gate, **fields: str) -> str:
    """Send a form of a request's page; return the text of the page that follows."""
    answer = person.client.post(reverse(name, args=[gate.id]), fields, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


def queue_of(inbox: InboxScenario, name: str) -> list[Any]:
    """The requests that wait for a person, in their order."""
    page = inbox_queries.load_inbox_page(inbox.person(name), ListFilters("mine"))
    return [row.gate.id for row in page.rows]


def test_the_agent_reads_the_comments_on_its_request(
    inbox: InboxScenario, rita: Reviewer, gate: Gate
) -> None:
    version = gate.version
    page = send(rita, "gate_comment", gate, comment="Use the <b>staging</b> key first.")
    assert "Use the &lt;b&gt;staging&lt;/b&gt; key first." in page
    read = inbox.agent.get(f"/gates/{gate.id}").json()
    assert [comment["text"] for comment in read["comments"]] == [
        "Use the <b>staging</b> key first."
    ]
    assert read["version"] == version  # open pages stay valid
    inbox.answer(gate, "administrator", "deny")
    send(rita, "gate_comment", gate, comment="After the denial.")
    waited = inbox.agent.post("/gates/wait", {"gates": {str(gate.id): 0}, "wait": 0}).json()
    assert [comment["text"] for comment in waited["gates"][0]["comments"]][1:] == [
        "After the denial."
    ]


def test_the_page_after_a_comment_is_scrolled_to_it(
    inbox: InboxScenario, rita: Reviewer, gate: Gate
) -> None:
    url, fields = reverse("gate_comment", args=[gate.id]), {"comment": "Ask the owner."}
    answer = rita.client.post(url, fields)
    fragment = f"comment-{Entry.objects.get(kind='gate.commented').position}"
    assert answer["Location"] == f"{url_of(gate)}#{fragment}"
    assert f'id="{fragment}"' in rita.page(url_of(gate))
    fields |= {"from": "inbox", "list": "state=mine"}
    place = rita.client.post(url, fields)["Location"]
    assert re.fullmatch(rf"{reverse('inbox')}\?state=mine&open={gate.id}#comment-\d+", place)
    refused = rita.client.post(url, fields | {"comment": ""})["Location"]
    assert "#" not in refused  # the message is at the top


def test_an_erased_comment_is_neither_shown_nor_sent(
    inbox: InboxScenario, rita: Reviewer, gate: Gate
) -> None:
    send(rita, "gate_comment", gate, comment="Ask Mallory")
    entry = Entry.objects.get(kind="gate.commented")
    assert "Mallory" not in entry.facts
    assert "Mallory" in Body.objects.get(entry=entry.position).text
    with transaction.atomic():
        erasures.erase_body(
            inbox.project.id, entry.position, reason="asked to", actor="p_1", now_us=now_us()
        )
    assert "Mallory" not in rita.page(url_of(gate))
    assert inbox.agent.get(f"/gates/{gate.id}").json()["comments"] == []


@pytest.mark.parametrize("text", ["", "  ", "x" * 2001])
def test_a_comment_has_a_length(
    inbox: InboxScenario, rita: Reviewer, gate: Gate, text: str
) -> None:
    assert "Write a comment of 1 to 2000 characters." in send(
        rita, "gate_comment", gate, comment=text
    )
    assert not Entry.objects.filter(kind="gate.commented").exists()


def test_a_mention_notifies_and_joins_the_queue(
    inbox: InboxScenario,
    rita: Reviewer,
    gate: Gate,
    add_full_channel: Callable[..., NotificationChannel],
) -> None:
    operator = inbox.person("operator")
    add_full_channel(target="oscar@example.org", person=operator.user, requests=False)
    page = send(rita, "gate_comment", gate, comment="@operator, is this yours? @stranger.")
    assert "No member of this project is called @stranger." in page
    assert Addressee.objects.get().user_id == operator.user_id
    tick()
    assert Notification.objects.get(topic="gate.addressed").state == "sent"
    assert "mentions you" in mail.outbox[-1].subject
    assert gate.id in queue_of(inbox, "operator")
    assert "mentions you" in Reviewer(inbox, "operator").page(url_of(gate))
    send(Reviewer(inbox, "operator"), "gate_comment", gate, comment="Yes.")
    assert not Addressee.objects.exists()


def test_an_assigned_request_waits_for_its_assignee_only(
    inbox: InboxScenario, rita: Reviewer, gate: Gate
) -> None:
    inbox.person("grace")
    assert queue_of(inbox, "reviewer") == queue_of(inbox, "grace") == [gate.id]
    assert "Assigned to you." in send(rita, "gate_assign", gate, to="reviewer")
    assert queue_of(inbox, "reviewer") == [gate.id]
    assert queue_of(inbox, "grace") == []
    oscar = Reviewer(inbox, "grace")
    assert "assigned to reviewer" in oscar.page(reverse("inbox"))
    line = oscar.page(url_of(gate)).partition('class="gate-line"')[2].partition("</p>")[0]
    assert "assigned to <b>reviewer</b>" in line  # above the title
    assert url_of(gate) in rita.page(reverse("inbox"), queue="me")
    assert url_of(gate) not in oscar.page(reverse("inbox"), queue="me")
    send(oscar, "gate_assign", gate, to="")
    assert queue_of(inbox, "grace") == [gate.id]
    kinds = Entry.objects.filter(kind="gate.assigned", subject=gate.id)
    assert kinds.count() == 2


def test_an_assignment_never_widens_who_may_approve(
    inbox: InboxScenario, rita: Reviewer, gate: Gate
) -> None:
    page = send(rita, "gate_assign", gate, to="viewer")
    assert "viewer cannot approve this request" in page
    assert "No member of this project is called nobody-here." in send(
        rita, "gate_assign", gate, to="nobody-here"
    )
    assert not Addressee.objects.exists()
    send(rita, "gate_assign", gate, to="reviewer")
    # Everybody who could approve still can.
    assert inbox.answer(gate, "grace").refusal is None
    assert "Only a request that waits" in send(rita, "gate_assign", gate, to="reviewer")
