"""Trees of tasks: no cycles, explicit completion, open parts, and exact items."""

from typing import Any

import pytest

from sessions.models import Task
from tests.api.api_client import Caller, code


@pytest.fixture
def path(agent: Caller) -> str:
    return f"/sessions/{agent.session()['id']}/tasks"


def make(agent: Caller, path: str, key: str, **fields: Any) -> dict[str, Any]:
    answer = agent.post(path, {"key": key, **fields})
    assert answer.status_code == 201, answer.text
    task: dict[str, Any] = answer.json()
    return task


def test_a_task_cannot_have_a_parent_below_it(agent: Caller, path: str) -> None:
    assert code(agent.post(path, {"key": "own", "parent": "own"})) == (422, "parent_is_below")
    # A report names "top" before it is created, and "middle" gets it as parent.
    agent.report([{"id": "f", "kind": "item.done", "session": "s-1", "task": "top", "item": "i"}])
    make(agent, path, "middle", parent="top")
    low = make(agent, path, "low", parent="middle")
    for parent in ("low", "middle", low["id"]):
        refused = agent.post(path, {"key": "top", "parent": parent})
        assert code(refused) == (422, "parent_is_below")
        assert refused.json()["pointer"] == "/parent"
    assert Task.objects.get(key="top").parent_id is None
    make(agent, path, "above")
    assert agent.post(path, {"key": "top", "parent": "above"}).status_code == 201
    assert Task.objects.get(key="top").parent == Task.objects.get(key="above")


def test_a_reported_cycle_is_stored_and_ends_every_walk(agent: Caller, path: str) -> None:
    edges = [("a", "b"), ("b", "a"), ("self", "self")]
    facts = [
        {
            "id": f"f-{task}",
            "kind": "task.created",
            "session": "s-1",
            "task": task,
            "parent": parent,
        }
        for task, parent in edges
    ]
    assert agent.report(facts).json()["accepted"] == 3
    assert Task.objects.get(key="self").parent_id is None
    assert Task.objects.get(key="a").parent == Task.objects.get(key="b")
    assert code(agent.post(path, {"key": "a", "parent": "b"})) == (422, "parent_is_below")
    assert agent.post(path, {"key": "c", "parent": "a"}).status_code == 201


def test_a_task_may_be_done_before_its_parts_and_counts_the_open_ones(
    agent: Caller, path: str
) -> None:
    top = make(agent, path, "top")
    parts = [make(agent, path, f"part-{n}", parent="top") for n in range(3)]
    items = [
        {"key": "a", "state": "done"},
        {"key": "b", "state": "failed"},
        {"key": "c", "state": "pending"},
    ]
    agent.post(f"/tasks/{top['id']}/items", {"items": items})
    agent.post(f"/tasks/{parts[0]['id']}/done")
    agent.post(f"/tasks/{parts[1]['id']}/change", {"state": "cancelled"})
    done = agent.post(f"/tasks/{top['id']}/done").json()
    assert (done["state"], done["open_tasks"], done["open_items"]) == ("done", 1, 2)
    assert (
        "open_tasks"
        not in agent.post(f"/tasks/{parts[2]['id']}/change", {"state": "running"}).json()
    )
    last = agent.post(f"/tasks/{parts[2]['id']}/change", {"state": "done"}).json()
    assert (last["state"], last["open_tasks"], last["open_items"]) == ("done", 0, 0)
    assert agent.post(f"/tasks/{top['id']}/change", {"title": "x"}).json()["open_tasks"] == 0


def test_the_items_of_one_state_are_listed_exactly(agent: Caller, path: str) -> None:
    items = f"/tasks/{make(agent, path, 't')['id']}/items"
    keys = [f"user-{n:04}" for n in range(1000)]
    agent.post(items, {"items": [{"key": key, "state": "pending"} for key in keys]})
    done = keys[:400] + keys[700:]
    agent.post(items, {"items": [{"key": key, "state": "done"} for key in done]})
    page = agent.get(items, state="pending").json()
    assert [item["key"] for item in page["items"]] == keys[400:700]
    assert (page["pending"], page["done"], page["failed"]) == (300, 700, 0)
    assert [item["key"] for item in agent.get(items, state="done").json()["items"]] == done
    assert agent.get(items, state="failed").json()["items"] == []
    assert code(agent.get(items, state="lost")) == (422, "invalid")
    assert code(agent.get(items, colour="red")) == (422, "parameter_unknown")
