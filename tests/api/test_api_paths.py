"""Objects in URLs: named by id or handle, a session also by its key."""

from typing import Any

import pytest

from sessions.models import Session
from tests.api.api_client import Caller, code
from tests.recovery.lease_helpers import hold

pytestmark = pytest.mark.django_db


def objects_by_kind(agent: Caller) -> dict[str, dict[str, Any]]:
    """Return one object of each kind with a handle and a URL."""
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
    item = objects_by_kind(agent)[kind]
    by_id, by_handle = agent.get(f"/{kind}/{item['id']}"), agent.get(f"/{kind}/{item['handle']}")
    assert by_id.status_code == by_handle.status_code == 200
    assert by_id.json() == by_handle.json()
    letter = item["handle"][0]
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
    made = objects_by_kind(agent)
    session, effect, task = made["sessions"], made["effects"], made["tasks"]
    for path in ("", "/resume", "/tasks", "/decisions"):
        answer = agent.get(f"/sessions/{session['key']}{path}")
        assert answer.status_code == 200, answer.text
    assert agent.get(f"/sessions/{session['key']}").json()["id"] == session["id"]
    body = {"process": "p-1", "intent_digest": effect["intent_digest"], "lease_epoch": 1}
    first = agent.post(f"/effects/{effect['handle']}/dispatch", body, key="once")
    again = agent.post(f"/effects/{effect['id']}/dispatch", body, key="once")
    assert first.json() == again.json()
    items = {"items": [{"key": "a", "state": "done"}], "lease_epoch": 1}
    assert agent.post(f"/tasks/{task['handle']}/items", items).status_code == 200
    ended = agent.post(f"/sessions/{session['key']}/end", {"status": "failed", "lease_epoch": 1})
    assert (ended.status_code, Session.objects.get().status) == (200, "failed")


def test_a_handle_wins_over_a_session_key_of_the_same_text(agent: Caller) -> None:
    first = agent.session("first")
    taken = agent.session(first["handle"])
    assert agent.get(f"/sessions/{first['handle']}").json()["id"] == first["id"]
    assert agent.get(f"/sessions/{taken['id']}").json()["key"] == first["handle"]


def test_nothing_of_another_project_is_named(agent: Caller, stranger: Caller) -> None:
    for kind, item in objects_by_kind(agent).items():
        assert code(
            stranger.get(f"/{kind}/{item['handle']}{'/items' if kind == 'tasks' else ''}")
        ) == (404, "not_found")
    assert code(stranger.get("/sessions/run 1:x")) == (404, "not_found")
    assert code(stranger.post("/sessions/run 1:x/end", {"status": "failed"})) == (404, "not_found")
