"""Message pages: operators write to an agent, and all members of the project read the messages."""

import re
from collections.abc import Iterator
from uuid import UUID

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse

from accounts import agents
from accounts.models import Agent, Person
from journal.models import Body, Entry
from sessions.models import Message, Session
from tests.api.api_client import Caller
from tests.pages.people import Organization
from tests.pages.sample_data import connect_agent

pytestmark = pytest.mark.django_db
NAMES = (
    "session_messages",
    "send_to_session",
    "agent_messages",
    "send_to_agent",
    "shared_messages",
)


@pytest.fixture
def worker(organization: Organization) -> Iterator[Caller]:
    """The agent deploy-7, in a session."""
    with connect_agent(organization.agent) as caller:
        caller.session("s-1")
        yield caller


@pytest.fixture
def other(organization: Organization) -> Iterator[Caller]:
    """Another agent of the project."""
    with transaction.atomic():
        agent = agents.ensure_agent(organization.project, "other")
    with connect_agent(agent) as caller:
        yield caller


def urls() -> dict[str, str]:
    session, agent = Session.objects.get().id, Agent.objects.get(name="deploy-7").id
    arguments = {"session": [session], "agent": [agent]}
    return {
        name: reverse(
            name, args=arguments.get(next((key for key in arguments if key in name), ""), [])
        )
        for name in NAMES
    }


def form_of(page: str) -> dict[str, str]:
    """The hidden fields of the form that sends."""
    key = re.search(r'name="key" value="([0-9a-f]+)"', page)
    project = re.search(r'name="in_project" value="([^"]+)"', page)
    assert key is not None
    assert project is not None
    return {"key": key[1], "in_project": project[1]}


def test_an_operator_sends_a_message_to_the_box_of_an_agent(
    organization: Organization, worker: Caller
) -> None:
    client, url = organization.client("operator"), urls()
    hidden = form_of(client.get(url["session_messages"]).content.decode())
    words = {"subject": "Stop that", "body": "Work on the tests instead.", **hidden}
    assert client.post(url["send_to_session"], words).status_code == 302
    assert (
        client.post(url["send_to_session"], words).status_code == 302
    )  # submitted twice, sent once
    (item,) = worker.get("/messages").json()["items"]
    assert item["from"] == {"kind": "person"}
    assert (item["subject"], item["body"]) == ("Stop that", "Work on the tests instead.")
    assert item["session"] == str(Session.objects.get().id)
    row = Message.objects.get()
    entry = Entry.objects.get(position=row.opened_position)
    assert entry.actor == Person.objects.get(user__username="operator").pseudonym
    assert "operator" not in Body.objects.get(entry=entry).text
    page = client.get(url["session_messages"]).content.decode()
    assert "not yet" in page
    worker.post(f"/messages/{item['id']}/read")
    page = client.get(url["session_messages"]).content.decode()
    assert "not yet" not in page


def test_pages_open_from_their_role_upwards_and_reading_changes_nothing(
    organization: Organization, worker: Caller
) -> None:
    for role in ("viewer", "reviewer", "operator", "administrator"):
        client = organization.client(role)
        for name, url in urls().items():
            sends = name.startswith("send")
            may = not sends or role in ("operator", "administrator")
            assert client.get(url).status_code == (405 if sends else 200)
            answer = client.post(url, {"body": "", "key": "k"})
            assert answer.status_code == (405 if not sends else 422 if may else 403), (role, name)
        page = client.get(urls()["session_messages"]).content.decode()
        assert ("Send a message" in page) == (role in ("operator", "administrator"))
        assert "Send a message" not in client.get(urls()["shared_messages"]).content.decode()
    assert not Message.objects.exists()
    for url in urls().values():
        assert Client().get(url).status_code in (302, 405)


def test_message_pages_of_another_project_are_not_found(
    organization: Organization, worker: Caller
) -> None:
    client = organization.client("neighbour")
    for name, url in urls().items():
        answer = (
            client.post(url, {"body": "x", "key": "k"})
            if name.startswith("send")
            else client.get(url)
        )
        assert answer.status_code == (200 if name == "shared_messages" else 404)
    assert not Message.objects.exists()


def test_a_post_without_a_csrf_token_is_refused(organization: Organization, worker: Caller) -> None:
    client = organization.client("operator", csrf=True)
    assert client.post(urls()["send_to_session"], {"body": "x", "key": "k"}).status_code == 403
    assert not Message.objects.exists()


def test_messages_of_agents_are_escaped_and_show_their_sender(
    organization: Organization, worker: Caller, other: Caller
) -> None:
    evil = "<script>alert(1)</script> \u202eapproved"
    other.post("/messages", {"to": "deploy-7", "subject": evil, "body": evil, "session": "s-1"})
    other.post("/messages", {"to": "shared", "body": "to all", "session": "s-1"})
    for name in ("session_messages", "agent_messages"):
        page = organization.client("viewer").get(urls()[name]).content.decode()
        assert "<script>alert" not in page
        assert "[U+202E]" in page
        assert "from an agent" in page
    page = organization.client("viewer").get(urls()["session_messages"]).content.decode()
    assert "by 0 agents" in page


def test_a_text_that_is_too_long_is_refused_and_stays_in_the_form(
    organization: Organization, worker: Caller
) -> None:
    client = organization.client("operator")
    answer = client.post(
        urls()["send_to_agent"], {"subject": "kept words", "body": "x" * 16_385, "key": "k"}
    )
    assert answer.status_code == 422
    assert "kept words" in answer.content.decode()
    assert not Message.objects.exists()


def test_the_page_shows_the_agents_capacity(organization: Organization, worker: Caller) -> None:
    worker.post(
        "/capacity",
        {"session": "s-1", "context_left_tokens": 1_000, "context_total_tokens": 200_000},
    )
    page = organization.client("viewer").get(urls()["session_messages"]).content.decode()
    assert "1,000 of 200,000 tokens" in page or "1\u202f000" in page
    assert "plans are throttled, because little context is left" in page


def test_a_long_box_has_older_pages(organization: Organization, worker: Caller) -> None:
    for number in range(52):
        worker.post("/messages", {"to": "deploy-7", "body": f"number {number}"})
    client, url = organization.client("viewer"), urls()["agent_messages"]
    page = client.get(url).content.decode()
    assert "number 51" in page
    assert ">number 1<" not in page
    older = re.search(r"\?before=(\d+)", page)
    assert older is not None
    assert "number 1" in client.get(f"{url}?before={older[1]}").content.decode()
    assert client.get(f"{url}?before=x").status_code == 200


def test_other_pages_link_to_the_messages(organization: Organization, worker: Caller) -> None:
    agent: UUID = Agent.objects.get(name="deploy-7").id
    page = organization.client("administrator").get(reverse("agent", args=[agent])).content.decode()
    assert reverse("agent_messages", args=[agent]) in page
    page = (
        organization.client("viewer")
        .get(reverse("session", args=[Session.objects.get().id]))
        .content.decode()
    )
    assert urls()["session_messages"] in page


def test_a_handle_leads_to_the_message_on_its_page(
    organization: Organization, worker: Caller
) -> None:
    for body in ({"to": "deploy-7", "session": "s-1"}, {"to": "deploy-7"}, {"to": "shared"}):
        sent = worker.post("/messages", {**body, "body": f"to {body}"}).json()["handle"]
        client = organization.client("viewer")
        answer = client.get(reverse("search_jump"), {"id": sent})
        assert answer.status_code == 302, sent
        assert answer["Location"].endswith(f"#{sent}")
        assert f'id="{sent}"' in client.get(answer["Location"].partition("#")[0]).content.decode()
    theirs = organization.client("neighbour").get(reverse("search_jump"), {"id": sent})
    assert theirs.status_code == 200
