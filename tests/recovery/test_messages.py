"""Messages between agents: recipient, order, read marks, and one message per key."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from accounts.models import Agent, Project
from db.clock import now_us
from journal import erasures
from journal.models import Entry
from sessions import messages
from sessions.models import Message, MessageRead
from tests.api.api_client import Caller, code, new_key
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization
from tests.pages.sample_data import connect_agent


@pytest.fixture
def other(call: Callable[..., Caller]) -> Caller:
    """The agent "other" of the same project."""
    return call("other")


def send(agent: Caller, to: str, body: str = "hello", **fields: Any) -> dict[str, Any]:
    answer = agent.post("/messages", {"to": to, "body": body, **fields})
    assert answer.status_code == 201, answer.text
    message: dict[str, Any] = answer.json()
    return message


def bodies(agent: Caller, **query: Any) -> list[str]:
    answer = agent.get("/messages", **query)
    assert answer.status_code == 200, answer.text
    return [item["body"] for item in answer.json()["items"]]


def test_a_message_is_in_the_box_of_its_recipient(agent: Caller, other: Caller) -> None:
    sent = send(agent, "other", "look at the build", subject="Build")
    (item,) = other.get("/messages").json()["items"]
    assert item["id"] == sent["id"]
    assert item["from"] == {"kind": "agent", "agent": "tester"}
    assert (item["subject"], item["body"], item["box"]) == ("Build", "look at the build", "mine")
    assert bodies(agent) == []
    row = Message.objects.get()
    entry = Entry.objects.get(position=row.opened_position)
    assert (entry.kind, entry.subject, sent["handle"]) == (
        "message.sent",
        row.id,
        f"m_{entry.position}",
    )
    assert "build" not in entry.facts


def test_boxes_are_read_in_the_order_of_the_journal_and_page_by_page(
    agent: Caller, other: Caller
) -> None:
    for number in range(5):
        send(agent, "other" if number % 2 else "shared", f"n{number}")
    assert bodies(other) == ["n0", "n1", "n2", "n3", "n4"]
    assert bodies(other, box="mine") == ["n1", "n3"]
    assert bodies(other, box="shared") == ["n0", "n2", "n4"]
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = other.get("/messages", limit=2, **after).json()
        seen += [item["body"] for item in page["items"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert seen == ["n0", "n1", "n2", "n3", "n4"]


def test_sending_again_under_the_same_key_sends_once(agent: Caller, other: Caller) -> None:
    key = new_key()
    first = agent.post("/messages", {"to": "other", "body": "once"}, key=key)
    again = agent.post("/messages", {"to": "other", "body": "once"}, key=key)
    assert (first.json(), first.status_code) == (again.json(), again.status_code)
    assert again.headers["Idempotent-Replay"] == "true"
    assert code(agent.post("/messages", {"to": "other", "body": "twice"}, key=key)) == (
        422,
        "key_reuse",
    )
    assert bodies(other) == ["once"]


def test_a_message_stays_unread_until_it_is_marked_and_marking_is_idempotent(
    agent: Caller, other: Caller
) -> None:
    sent = send(agent, "other")
    assert bodies(other) == bodies(other) == ["hello"]  # a reader that crashed reads it again
    path, key = f"/messages/{sent['id']}/read", new_key()
    marked = other.post(path, key=key)
    assert marked.status_code == 200
    assert other.post(path, key=key).headers["Idempotent-Replay"] == "true"
    assert other.post(path).json()["read_at_us"] == marked.json()["read_at_us"]
    assert bodies(other) == []
    assert bodies(other, unread="0") == ["hello"]
    assert Entry.objects.filter(kind="message.read").count() == 1
    assert Message.objects.get().read_at_us == marked.json()["read_at_us"]


def test_a_message_to_all_is_read_by_each(agent: Caller, other: Caller) -> None:
    sent = send(agent, "shared", "to all")
    assert bodies(agent) == bodies(other) == ["to all"]
    assert other.post(f"/messages/{sent['id']}/read").status_code == 200
    assert bodies(other) == []
    assert bodies(agent) == ["to all"]
    assert [row.agent.name for row in MessageRead.objects.select_related("agent")] == ["other"]


def test_an_agent_sees_and_marks_only_its_own_box_and_the_shared_one(
    agent: Caller, other: Caller, stranger: Caller, call: Callable[..., Caller]
) -> None:
    third = call("third")
    sent = send(agent, "other")
    send(stranger, "shared", "elsewhere")
    for reader in (agent, third, stranger):
        assert code(reader.get(f"/messages/{sent['id']}")) == (404, "not_found")
        assert code(reader.post(f"/messages/{sent['id']}/read")) == (404, "not_found")
    assert bodies(third) == []
    assert other.get(f"/messages/{sent['id']}").json()["body"] == "hello"
    assert Message.objects.filter(read_at_us__isnull=False).count() == 0


def test_an_invalid_message_is_refused_and_not_recorded(
    agent: Caller, other: Caller, stranger: Caller
) -> None:
    theirs = send(stranger, "tester")
    refusals = {
        "agent_unknown": {"to": "nobody", "body": "x"},
        "message_unknown": {"to": "other", "body": "x", "in_reply_to": theirs["id"]},
        "not_found": {"to": "other", "body": "x", "session": "no-such"},
        "invalid": {"to": "other", "body": ""},
    }
    before = Entry.objects.count()
    for expected, body in refusals.items():
        assert code(agent.post("/messages", body))[1] == expected
    assert code(agent.post("/messages", {"to": "other", "body": "x" * 16_385}))[1] == "invalid"
    assert Entry.objects.count() == before
    assert send(agent, "other", "x" * 16_384)["box"] == "mine"
    sent = send(agent, "other", "first")
    assert (
        other.post(
            "/messages", {"to": "tester", "body": "re", "in_reply_to": sent["id"]}
        ).status_code
        == 201
    )


@pytest.mark.parametrize("query", ["unread=2", "box=theirs", "limit=0", "after=x", "colour=red"])
def test_an_invalid_query_is_refused(agent: Caller, query: str) -> None:
    assert agent.client.get(f"/messages?{query}").status_code == 422


def test_messages_of_a_session_exclude_those_of_other_sessions(
    agent: Caller, other: Caller
) -> None:
    for key in ("s-1", "s-2"):
        other.session(key)
        send(agent, "other", f"about {key}", session=key)
    send(agent, "other", "about none")
    assert bodies(other, session="s-1") == ["about s-1", "about none"]
    project, recipient = Project.objects.get(name="default"), Agent.objects.get(name="other")
    session = Message.objects.filter(session__key="s-2").values_list("session", flat=True).get()
    views, more = messages.load_unread_messages(project.id, recipient.id, session, 1)
    assert ([view.body for view in views], more) == (["about s-2"], True)


def test_an_erased_message_says_that_it_was_erased(agent: Caller, other: Caller) -> None:
    send(agent, "other", "call me on the red telephone")
    row = Message.objects.get()
    with transaction.atomic():
        erasures.erase_body(
            row.project_id, row.opened_position, reason="art. 17", actor="p_1", now_us=now_us()
        )
    (item,) = other.get("/messages").json()["items"]
    assert item["erased"] is True
    assert "telephone" not in str(item)  # a word that no handle or time can contain


def test_secrets_in_a_message_are_replaced(agent: Caller, other: Caller) -> None:
    send(agent, "other", "use ghp_" + "a1B2" * 9)
    assert "[redacted:" in bodies(other)[0]


def test_requested_changes_are_sent_to_the_agent(organization: Organization) -> None:
    with connect_agent(organization.agent) as caller:
        inbox = InboxScenario(organization, caller)
        inbox.rules()
        inbox.declare("git.push")
        gate = inbox.gate(inbox.plan(arguments={"ref": "main"}))
        inbox.answer(gate, "reviewer", "request_changes", "squash the commits of bob first")
        (item,) = caller.get("/messages").json()["items"]
        assert (item["from"], item["session"]) == ({"kind": "person"}, str(gate.session_id))
        assert f"/api/v1/gates/{gate.id}" in item["body"]
        assert "bob" not in item["body"]  # a reason is stored in one body, where it can be erased
        denied = inbox.gate(inbox.plan("e-2", arguments={"ref": "next"}))
        inbox.answer(denied, "reviewer", "deny", "no")
        assert len(caller.get("/messages").json()["items"]) == 1
