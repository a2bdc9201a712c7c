"""Effects, gates and tasks are stored by the names that the agent chose."""

from typing import Any

import pytest

from tests.api.api_client import Caller, code


def call(agent: Caller, call_id: str, arguments: dict[str, Any], **fields: Any) -> dict[str, Any]:
    body = {"session": "run/1", "tool": "mail.send", "call_id": call_id, "arguments": arguments}
    answer = agent.post("/effects", body | fields)
    assert answer.status_code == 201, answer.text
    planned: dict[str, Any] = answer.json()
    return planned


@pytest.fixture
def opened(agent: Caller) -> dict[str, Any]:
    return agent.session("run/1", mode="one_shot")


def test_an_effect_is_named_by_its_session_and_its_key_or_call_id(
    agent: Caller, opened: dict[str, Any]
) -> None:
    planned = call(agent, "toolu_1", {"to": "ada"})
    assert planned["call_id"] == "toolu_1"
    for session in (opened["id"], opened["handle"]):
        for name in (f"effect_key={planned['effect_key']}", "call_id=toolu_1"):
            stored = agent.get(f"/effects/{session};{name}")
            assert (stored.status_code, stored.json()["id"]) == (200, planned["id"])
    named = f"/effects/{opened['handle']};call_id=toolu_1"
    answer = agent.post(f"{named}/dispatch", {"process": "p", "arguments": {"to": "ada"}})
    assert answer.status_code == 200
    assert agent.post(f"{named}/acknowledge", {"attempt": 1, "outcome": "ok"}).status_code == 200
    assert agent.get(f"{named}/verdict").json()["reason"] == "DONE"
    listed = agent.get("/effects", session="run/1", call_id="toolu_1").json()["items"]
    assert [item["id"] for item in listed] == [planned["id"]]


def test_a_session_key_without_a_slash_names_it_too(agent: Caller) -> None:
    agent.session("run:2 x", mode="one_shot")
    effect = agent.plan("push;1", session="run:2 x")
    for path in (f"/effects/run:2 x;effect_key={effect['effect_key']}", f"/effects/{effect['id']}"):
        stored = agent.get(path)
        assert stored.status_code == 200, (path, stored.text)
        assert stored.json()["id"] == effect["id"]


def test_a_call_id_of_several_effects_is_refused_and_its_list_has_all(
    agent: Caller, opened: dict[str, Any]
) -> None:
    first = call(agent, "toolu_1", {"to": "ada"})
    second = call(agent, "toolu_1", {"to": "bob"})
    answer = agent.get(f"/effects/{opened['id']};call_id=toolu_1")
    assert code(answer) == (409, "CALL_REUSED")
    listed = agent.get("/effects", session=opened["id"], call_id="toolu_1").json()["items"]
    assert [item["id"] for item in listed] == [second["id"], first["id"]]


@pytest.mark.parametrize(
    "name", ["effect_key=none", "call_id=none", "call_id=", "key=x", "effect_key"]
)
def test_an_unknown_name_is_404(agent: Caller, opened: dict[str, Any], name: str) -> None:
    assert agent.get(f"/effects/{opened['id']};{name}").status_code == 404
    assert agent.get(f"/effects/nowhere;{name}").status_code == 404


def test_names_find_nothing_of_another_project(
    agent: Caller, opened: dict[str, Any], stranger: Caller
) -> None:
    planned = call(agent, "toolu_1", {"to": "ada"})
    for name in (f"effect_key={planned['effect_key']}", "call_id=toolu_1"):
        assert stranger.get(f"/effects/{opened['id']};{name}").status_code == 404
        assert stranger.get(f"/effects/{opened['handle']};{name}").status_code == 404


def test_a_call_id_is_looked_up_with_its_session_only(agent: Caller) -> None:
    assert code(agent.get("/effects", call_id="toolu_1")) == (422, "session_missing")


def test_a_task_is_named_by_its_key(agent: Caller, opened: dict[str, Any]) -> None:
    task = agent.post(f"/sessions/{opened['id']}/tasks", {"key": "tests"}).json()
    answer = agent.post(f"/tasks/{opened['handle']};task=tests/done", {})
    assert (answer.status_code, answer.json()["id"]) == (200, task["id"])
    assert agent.get(f"/tasks/{opened['handle']};task=other/items").status_code == 404
