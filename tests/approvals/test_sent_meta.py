"""Pages of a session, an effect and a request show what the agent sent along, as inert text."""

import re

from django.test import Client
from django.urls import reverse

from journal.models import Entry
from tests.approvals.inbox_scenario import InboxScenario

META = {"cwd": "/srv/<script>alert(1)</script>", "allowed": ["approve", "edit"]}
LABEL = "sent by the agent, not compared"


def shown(client: Client, name: str, identity: object, **query: str) -> str:
    name = "gate_history" if name == "gate" and query else name
    response = client.get(reverse(name, args=[identity]), query)
    assert response.status_code == 200
    return re.sub(r"\s+", " ", response.content.decode())


def test_meta_is_shown_as_sent_by_the_agent_and_only_where_there_is_some(
    inbox: InboxScenario,
) -> None:
    client = inbox.organization.client("reviewer")
    plain = inbox.gate(inbox.plan("e-1"))
    for name, identity in (
        ("effect", plain.effect_id),
        ("gate", plain.id),
        ("session", plain.session_id),
    ):
        assert LABEL not in shown(client, name, identity)
    gate = inbox.gate(inbox.plan("e-2", arguments={"n": 2}, meta=META))
    for name, identity in (("effect", gate.effect_id), ("gate", gate.id)):
        page = shown(client, name, identity)
        assert LABEL in page
        assert "&lt;script&gt;alert(1)" in page
        assert "<script>alert(1)" not in page
    inbox.agent.session(gate.session.key, meta={"transcript": "t.jsonl"})
    page = shown(client, "session", gate.session_id)
    assert LABEL in page
    assert "t.jsonl" in page


def test_past_pages_show_what_was_sent_by_then(inbox: InboxScenario) -> None:
    client = inbox.organization.client("reviewer")
    gate = inbox.gate(inbox.plan("e-1", meta={"cwd": "/before"}))
    then = Entry.objects.latest("position").position
    inbox.plan("e-1", meta={"cwd": "/after"})
    inbox.agent.session(gate.session.key, meta={"cwd": "/after"})
    for name, identity in (("effect", gate.effect_id), ("gate", gate.id)):
        page = shown(client, name, identity, asof=f"#{then}")
        assert "/before" in page
        assert "/after" not in page
        assert "/after" in shown(client, name, identity)
    assert LABEL not in shown(client, "session", gate.session_id, asof=f"#{then}")
    assert "/after" in shown(client, "session", gate.session_id)
