"""What an address may name a thing by: its id, its handle, and a session by its key."""

from typing import Any

import pytest

from sessions.models import Session
from tests.api.api_client import Caller, code
from tests.recovery.lease_helpers import hold

pytestmark = pytest.mark.django_db


def things(agent: Caller) -> dict[str, dict[str, Any]]:
    """One of each kind that has a handle and an address."""
    session = agent.session("run 1:x", mode="leased")
    lease = hold(agent, session["id"])
    effect = agent.plan(session=session["id"], lease_epoch=1)
    task = agent.post(f"/sessions/{session['id']}/tasks", {"key": "t", "lease_epoch": 1}).json()
    message = agent.post("/messages", {"to": "tester", "body": "x"}).json()
    about = {
        "session": session["id"],
        "type": "log",
        "uri": "file:x",
        "sha256": "a" * 64,
        "size": 1,
    }
    artifact = agent.post(
        "/artifacts", about | {"media_type": "text/plain", "lease_epoch": 1}
    ).json()
    return {
        "sessions": session,
        "leases": lease,
        "effects": effect,
        "messages": message,
        "artifacts": artifact,
        "tasks": task,
    }


@pytest.mark.parametrize("kind", ["sessions", "leases", "effects", "messages", "artifacts"])
def test_an_id_and_a_handle_are_the_same(agent: Caller, kind: str) -> None:
    one = things(agent)[kind]
    by_id, by_handle = agent.get(f"/{kind}/{one['id']}"), agent.get(f"/{kind}/{one['handle']}")
    assert by_id.status_code == by_handle.status_code == 200
    assert by_id.json() == by_handle.json()
    letter = one["handle"][0]
    for absent in (
        f"{letter}_999999",
        f"{letter}_0",
        f"{letter}_",
        f"{letter}_99999999999999999999",
    ):
        assert code(agent.get(f"/{kind}/{absent}")) == (404, "not_found")


def test_a_session_is_named_by_its_key_too_and_commands_are_the_same_by_any_name(
    agent: Caller,
) -> None:
    made = things(agent)
    session, effect, task = made["sessions"], made["effects"], made["tasks"]
    for path in ("", "/resume", "/tasks", "/decisions"):
        told = agent.get(f"/sessions/{session['key']}{path}")
        assert told.status_code == 200, told.text
    assert agent.get(f"/sessions/{session['key']}").json()["id"] == session["id"]
    body = {"process": "p-1", "intent_digest": effect["intent_digest"], "lease_epoch": 1}
    first = agent.post(f"/effects/{effect['handle']}/dispatch", body, key="once")
    again = agent.post(f"/effects/{effect['id']}/dispatch", body, key="once")
    assert first.json() == again.json()
    items = {"items": [{"key": "a", "state": "done"}], "lease_epoch": 1}
    assert agent.post(f"/tasks/{task['handle']}/items", items).status_code == 200
    ended = agent.post(f"/sessions/{session['key']}/end", {"status": "failed", "lease_epoch": 1})
    assert (ended.status_code, Session.objects.get().status) == (200, "failed")


def test_a_handle_is_the_servers_name_whatever_key_a_session_has(agent: Caller) -> None:
    first = agent.session("first")
    taken = agent.session(first["handle"])
    assert agent.get(f"/sessions/{first['handle']}").json()["id"] == first["id"]
    assert agent.get(f"/sessions/{taken['id']}").json()["key"] == first["handle"]


def test_nothing_of_another_project_is_named(agent: Caller, stranger: Caller) -> None:
    for kind, one in things(agent).items():
        assert code(
            stranger.get(f"/{kind}/{one['handle']}{'/items' if kind == 'tasks' else ''}")
        ) == (404, "not_found")
    assert code(stranger.get("/sessions/run 1:x")) == (404, "not_found")
    assert code(stranger.post("/sessions/run 1:x/end", {"status": "failed"})) == (404, "not_found")
