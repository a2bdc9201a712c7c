"""What people saw and did, on a request and on a session: by name, with delivery and rule."""

import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from approvals.models import Vote
from approvals.voting.votes import ShownGate
from journal.models import Entry
from notifications.models import Notification, NotificationChannel
from sessions.models import Message, Session
from tests.api.api_client import Caller
from tests.approvals import notification_helpers
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.notification_helpers import risky, tick
from tests.pages.people import Organization

pytestmark = pytest.mark.django_db
add_full_channel = notification_helpers.add_full_channel
_outside = notification_helpers._outside
MOST_QUERIES = 12


@pytest.fixture
def inbox(organization: Organization, agent: Caller) -> InboxScenario:
    scenario = InboxScenario(organization, agent)
    scenario.rules()
    return scenario


def read_section(organization: Organization, url: str, role: str = "viewer") -> str:
    """Return the words of the section as the page loads it, within its number of queries."""
    client = organization.client(role)
    client.get(url)  # the first page after a sign-in writes its time
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(url, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    assert len(queries) <= MOST_QUERIES, [query["sql"][:120] for query in queries]
    page = answer.content.decode()
    assert page.lstrip().startswith("<section")
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_a_request_names_who_was_notified_who_looked_and_what_was_answered(
    organization: Organization,
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
) -> None:
    add_full_channel()
    gate = risky(inbox, "high")
    tick()
    tick(after_s=120)
    reviewer = organization.client("reviewer")
    page = reviewer.get(reverse("gate", args=[gate.id])).content.decode()
    url = reverse("gate_people", args=[gate.id])
    assert f'<a href="{url}">' in page  # without a script
    assert f'hx-get="{url}"' in page
    shown = ShownGate(*inbox.shown(gate)[:5], warnings=("near_name", "near_name"))
    result = inbox.answer(gate, "sam", "deny", shown=shown)
    assert result.refusal is None
    words = read_section(organization, url)
    assert "Gatebook approval requested from reviewer" in words
    assert "reviewer saw the request, version 1" in words
    assert "sam answered the request: denied" in words
    assert "the page warned: near name ×2" in words
    assert "agreed in INC-204" in words
    assert "warning shown with an answer near_name" in words
    (sent,) = Notification.objects.filter(gate=gate.id, topic="gate.requested")
    assert sent.state == "sent"
    assert "email at example.org notified about the request: delivered" in words
    assert "team@" not in words
    assert Vote.objects.get(gate=gate).user.username == "sam"
    other = organization.client("neighbour").get(url)
    assert other.status_code == 404


def test_a_request_lists_its_own_acts_with_each_answer_however_many_looked(
    organization: Organization,
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = organization.members["operator"].user
    add_full_channel(target="private@example.net", person=owner)
    inbox.declare("git.push")
    planned = inbox.plan("one")
    gates = [inbox.gate(planned)]
    assert inbox.answer(gates[0], "sam").refusal is None
    inbox.agent.dispatch(planned)
    inbox.agent.fail(planned, "rejected")
    gates.append(inbox.gate(inbox.plan("one")))
    assert gates[0].effect_id == gates[1].effect_id
    tick()
    inbox.person("rita")
    organization.client("rita").get(reverse("gate", args=[gates[1].id]))
    first_url = reverse("gate_people", args=[gates[0].id])
    assert "rita" not in read_section(organization, first_url)
    monkeypatch.setattr("pages.people.people_acts.MAX_ACTS", 2)
    for name in ("viewer", "operator", "reviewer"):
        organization.client(name).get(reverse("gate", args=[gates[0].id]))
    first = read_section(organization, first_url)
    assert "approval requested" in first
    assert "sam answered the request: approved" in first
    assert first.count("saw the request") == 2
    assert "Only the newest 2 views are listed." in first
    second = read_section(organization, reverse("gate_people", args=[gates[1].id]))
    assert "rita saw the request" in second
    assert "operator notified about the request" in second
    assert "private@" not in second
    assert "newest" not in second


def test_a_session_names_who_looked_what_was_found_and_who_wrote(
    organization: Organization, agent: Caller, inbox: InboxScenario
) -> None:
    planned = inbox.plan("one", tool="deploy")
    gate = inbox.gate(planned)
    session = Session.objects.get(id=planned["session"])
    viewer = organization.client("viewer")
    assert viewer.get(reverse("session", args=[session.id])).status_code == 200
    assert viewer.get(reverse("session", args=[session.id])).status_code == 200
    looked = Entry.objects.filter(kind="access.viewed", session=session.id, subject=session.id)
    assert looked.count() == 1  # once an hour
    viewer.get(reverse("effect", args=[planned["id"]]))
    organization.client("reviewer").get(reverse("gate", args=[gate.id]))
    operator = organization.client("operator")
    sent = operator.post(
        reverse("send_to_session", args=[session.id]),
        {"subject": "", "body": "Wait for Monday.", "key": "k"},
    )
    assert sent.status_code == 302
    message = Message.objects.get()
    agent.post(f"/messages/{message.id}/read")
    reply = {"to": "shared", "body": "I wait.", "in_reply_to": str(message.id)}
    answered = agent.post("/messages", {**reply, "session": planned["session"]})
    assert answered.status_code == 201, answered.text
    url = reverse("session_people", args=[session.id])
    assert f'<a href="{url}">' in viewer.get(reverse("session", args=[session.id])).content.decode()
    words = read_section(organization, url)
    assert "viewer saw the page of the session" in words
    assert re.search(r"viewer saw the page of the effect e_\d+", words), words
    assert f"reviewer saw the request, version 1 {gate}" in words
    assert f"operator wrote to agent deploy-7 {message}" in words
    assert f"agent deploy-7 read the message {message}" in words
    assert f"agent deploy-7 answered {message}" in words
    assert "policy rule basic@1/deploy requested approval 1" in words
    assert organization.client("neighbour").get(url).status_code == 404


def test_a_long_session_is_paged_and_nothing_is_lost(
    organization: Organization,
    inbox: InboxScenario,
    add_full_channel: Callable[..., NotificationChannel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_full_channel()
    planned = inbox.plan("one", tool="deploy")
    gate = inbox.gate(planned)
    tick()
    operator = organization.client("operator")
    sent = {"subject": "", "body": "Wait for Monday."}
    for name in ("rita", "sam"):
        for number in range(2):
            send = reverse("send_to_session", args=[planned["session"]])
            assert operator.post(send, {**sent, "key": f"{name} {number}"}).status_code == 302
        inbox.person(name)
        organization.client(name).get(reverse("gate", args=[gate.id]))
    url = reverse("session_people", args=[planned["session"]])
    monkeypatch.setattr("pages.people.people_acts.MAX_ACTS", 2)
    client, pages = organization.client("viewer"), []
    while url:
        page = client.get(url).content.decode()
        pages.append(page)
        older = re.search(r'href="([^"]+before=\d+)">Earlier', page)
        url = older[1] if older else ""
    assert len(pages) > 1
    text = " ".join(" ".join(re.sub(r"<[^>]+>", " ", page).split()) for page in pages)
    assert text.count("approval requested") == 1
    for name in ("rita", "sam"):
        assert text.count(f"{name} saw the request") == 1
    assert text.count("notified about the request") == 1
    assert text.count("operator wrote to") == Message.objects.count() == 4
