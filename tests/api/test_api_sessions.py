"""Sessions, tasks and items: the commands of agents, and refused commands."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User

from accounts.models import Membership, Project
from investigation.history import past_sessions as past
from investigation.history.moment import JournalCut
from journal.models import Body, Entry
from sessions.models import Item, Session, Task
from tests.api.api_client import Caller, code
from tests.rows_with_entries import add_row


def test_a_session_is_opened_by_its_key(agent: Caller) -> None:
    answer = agent.post(
        "/sessions",
        {"key": "run-1", "title": "Fix it", "branch": "fix", "labels": {"team": "core"}},
    )
    assert answer.status_code == 201
    opened = answer.json()
    session = Session.objects.get()
    assert (str(session.id), session.key, session.title) == (opened["id"], "run-1", "Fix it")
    assert (session.mode, session.status, session.labels) == (
        "one_shot",
        "running",
        {"team": "core"},
    )
    assert opened["handle"] == f"s_{session.opened_position}"
    assert Entry.objects.get(kind="session.started").position == session.opened_position


def test_a_used_key_is_the_same_session_unless_its_fields_differ(agent: Caller) -> None:
    body = {"key": "run-1", "title": "Fix it", "mode": "leased", "repository": "acme/x"}
    first = agent.post("/sessions", body, key="m").json()
    # Neither a smaller nor a greater idempotency key changes the fields of the first opening.
    for key in ("a", "z"):
        again = agent.post("/sessions", {"key": "run-1"}, key=key)
        assert (again.status_code, again.json()["id"]) == (200, first["id"])
        assert Session.objects.get().title == "Fix it"
    assert agent.post("/sessions", body).status_code == 200
    for other in ({"title": "Other"}, {"mode": "one_shot"}, {"repository": "acme/y"}):
        refused = agent.post("/sessions", {**body, **other})
        assert code(refused) == (409, "SESSION_DIFFERS")
        assert refused.json()["session"]["id"] == first["id"]
    session = Session.objects.get()
    assert (session.title, session.mode, session.labels) == ("Fix it", "leased", {})


def test_the_agent_of_a_session_adds_labels_and_changes_none(
    agent: Caller, call: Callable[..., Caller]
) -> None:
    first = agent.session("run-1", labels={"team": "core"})
    more = {"key": "run-1", "labels": {"team": "core", "shift": "night"}}
    for _ in range(2):  # delivered twice, it is done once
        answer = agent.post("/sessions", more, key="more")
        assert (answer.status_code, answer.json()["id"]) == (200, first["id"])
    assert answer.headers["Idempotent-Replay"] == "true"
    assert agent.post("/sessions", more).status_code == 200
    assert Session.objects.get().labels == {"team": "core", "shift": "night"}
    entry = Entry.objects.get(kind="session.changed")
    assert (entry.facts, entry.lane) == ('{"labelled":true}', "command")
    assert json.loads(Body.objects.get(entry=entry).text)["labels"] == more["labels"]
    assert agent.session("run-1", labels={"shift": "night"})["version"] == answer.json()["version"]
    for labels in ({"team": "web"}, {"team": "web", "new": "x"}):
        assert code(agent.post("/sessions", {"key": "run-1", "labels": labels})) == (
            409,
            "SESSION_DIFFERS",
        )
    other = call("another-agent")
    assert code(other.post("/sessions", {"key": "run-1", "labels": {"mine": "x"}})) == (
        403,
        "OTHER_AGENT",
    )
    assert code(other.post("/sessions", {"key": "run-1", "labels": {"team": "core"}})) == (
        403,
        "OTHER_AGENT",
    )
    assert Session.objects.get().labels == {"team": "core", "shift": "night"}
    at = JournalCut(entry.position - 1, entry.received_us)
    project = Session.objects.get().project_id
    assert past.rebuild_sessions(project, [UUID(first["id"])], at)[UUID(first["id"])].labels == {
        "team": "core"
    }
    now = JournalCut(entry.position, entry.received_us)
    assert (
        past.rebuild_sessions(project, [UUID(first["id"])], now)[UUID(first["id"])].labels
        == more["labels"]
    )


def test_a_session_may_have_a_parent_and_an_owner_that_exist(agent: Caller) -> None:
    parent = agent.session("parent")
    for reference in ("parent", parent["id"]):
        child = agent.session(f"child of {reference}", parent=reference)
        assert str(Session.objects.get(id=child["id"]).parent_id) == parent["id"]
    assert code(agent.post("/sessions", {"key": "c", "parent": "absent"})) == (
        422,
        "parent_unknown",
    )
    assert code(agent.post("/sessions", {"key": "c", "owner": "nobody"})) == (422, "owner_unknown")
    user = User.objects.create_user("ann")
    assert code(agent.post("/sessions", {"key": "c", "owner": "ann"})) == (422, "owner_unknown")
    add_row(Membership(user=user, project=Project.objects.get(name="default"), role="viewer"))
    owned = agent.session("c", owner="ann")
    assert Session.objects.get(id=owned["id"]).owner == user


@pytest.mark.parametrize("second", ["a", "z"])
def test_the_first_end_is_kept(agent: Caller, second: str) -> None:
    session = agent.session()
    path = f"/sessions/{session['id']}/end"
    assert agent.post(path, {"status": "completed"}, key="m").json()["status"] == "completed"
    again = agent.post(path, {"status": "failed"}, key=second)
    assert (again.status_code, again.json()["status"]) == (200, "completed")
    assert Entry.objects.filter(kind="session.ended").count() == 2  # both are on the record
    assert code(agent.post(path, {"status": "running"})) == (422, "invalid")
    assert code(agent.post(path, {})) == (422, "invalid")


def test_sessions_are_read_and_listed(agent: Caller) -> None:
    for number in range(3):
        agent.session(f"s-{number}", title=f"number {number}")
    agent.post(
        f"/sessions/{agent.session('s-0', title='number 0')['id']}/end", {"status": "failed"}
    )
    page = agent.get("/sessions", limit=2).json()
    assert [session["key"] for session in page["items"]] == ["s-2", "s-1"]
    assert [
        session["key"]
        for session in agent.get("/sessions", limit=2, after=page["next"]).json()["items"]
    ] == ["s-0"]
    assert [
        session["key"] for session in agent.get("/sessions", status="failed").json()["items"]
    ] == ["s-0"]
    session = agent.get("/sessions", key="s-1").json()["items"][0]
    assert agent.get(f"/sessions/{session['id']}").json() == session | {"lease": None, "meta": {}}
    assert (session["title"], session["agent"], session["effects"]) == ("number 1", "tester", 0)


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0},
        {"limit": 201},
        {"limit": "x"},
        {"after": -1},
        {"status": "asleep"},
        {"key": ""},
        {"key": "a\0b"},
    ],
    ids=str,
)
def test_a_list_takes_only_what_it_offers(agent: Caller, query: dict[str, Any]) -> None:
    assert code(agent.get("/sessions", **query)) == (422, "invalid")
    assert code(agent.client.get("/sessions?limit=1&limit=2")) == (422, "invalid")
    unknown = agent.get("/sessions", owner__password="x")
    assert code(unknown) == (422, "parameter_unknown")


def test_nul_in_a_title_is_shown_by_its_symbol_and_kept_exactly(agent: Caller) -> None:
    agent.session("s", title="a\0b")
    assert Session.objects.get().title == "a\u2400b"
    assert '"title":"a\\u0000b"' in Body.objects.get(entry__kind="session.started").text
    assert agent.post("/sessions", {"key": "s", "title": "a\0b"}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"key": ""},
        {"key": "k" * 201},
        {"key": "a\0b"},
        {"key": "a\nb"},
        {"key": "k", "labels": {"a": 1}},
        {"key": "k", "labels": {str(n): "" for n in range(33)}},
        {"key": "k", "title": "t" * 301},
        {"key": "k", "mode": "forever"},
        {"key": "k", "project": "elsewhere"},
    ],
    ids=lambda body: str(body)[:40],
)
def test_an_invalid_session_is_refused_completely(agent: Caller, body: dict[str, Any]) -> None:
    refused = agent.post("/sessions", body)
    assert code(refused) == (422, "invalid")
    assert Session.objects.count() == 0
    assert Entry.objects.filter(kind="session.started").count() == 0


# --- tasks and items ------------------------------------------------------------------------------------------------


@pytest.fixture
def make_task(agent: Caller) -> Callable[..., dict[str, Any]]:
    session = agent.session()

    def make(key: str = "t-1", **fields: Any) -> dict[str, Any]:
        answer = agent.post(f"/sessions/{session['id']}/tasks", {"key": key, **fields})
        assert answer.status_code == 201, answer.text
        task: dict[str, Any] = answer.json()
        return task | {"session": session["id"]}

    return make


def test_a_task_is_created_once(agent: Caller, make_task: Callable[..., dict[str, Any]]) -> None:
    created = make_task(title="build", priority=5, worker="w", branch_label="b")
    task = Task.objects.get()
    assert (task.title, task.priority, task.worker, task.branch_label, task.state) == (
        "build",
        5,
        "w",
        "b",
        "pending",
    )
    again = agent.post(
        f"/sessions/{created['session']}/tasks", {"key": "t-1", "title": "other"}, key="0"
    )
    assert (again.status_code, again.json()["id"]) == (200, created["id"])
    assert Task.objects.get().title == "build"
    child = make_task("t-2", parent="t-1")
    assert str(Task.objects.get(id=child["id"]).parent_id) == created["id"]
    assert make_task("t-3", parent=created["id"])
    refused = agent.post(
        f"/sessions/{created['session']}/tasks", {"key": "t-4", "parent": "absent"}
    )
    assert code(refused) == (422, "parent_unknown")
    assert code(agent.post(f"/sessions/{uuid4()}/tasks", {"key": "t"})) == (404, "not_found")


def test_the_last_accepted_change_counts(
    agent: Caller, make_task: Callable[..., dict[str, Any]]
) -> None:
    path = f"/tasks/{make_task(title='build')['id']}/change"
    for key, state in (("z", "running"), ("m", "blocked"), ("a", "failed"), ("b", "running")):
        assert agent.post(path, {"state": state}, key=key).json()["state"] == state
    assert agent.post(path, {"title": "new"}).json()["state"] == "running"
    task = Task.objects.get()
    assert (task.title, task.state) == ("new", "running")
    assert code(agent.post(path, {"state": "asleep"})) == (422, "invalid")
    assert code(agent.post(path, {"key": "other"})) == (422, "invalid")


def test_a_done_task_stays_done(agent: Caller, make_task: Callable[..., dict[str, Any]]) -> None:
    task = make_task()
    assert agent.post(f"/tasks/{task['id']}/done").json()["state"] == "done"
    assert agent.post(f"/tasks/{task['id']}/change", {"state": "running"}).json()["state"] == "done"
    assert Task.objects.get().done_at_us is not None
    assert code(agent.post(f"/tasks/{task['id']}/done", {"really": True})) == (422, "invalid")


def test_items_show_exactly_which_are_done(
    agent: Caller, make_task: Callable[..., dict[str, Any]]
) -> None:
    path = f"/tasks/{make_task()['id']}/items"
    first = agent.post(
        path, {"items": [{"key": f"i-{n}", "state": "pending"} for n in range(3)]}, key="m"
    )
    counted = {"pending": 3, "done": 0, "failed": 0, "version": Task.objects.get().version}
    assert first.json() == {"task": str(Task.objects.get().id), **counted}
    agent.post(path, {"items": [{"key": "i-0", "state": "done", "detail": "a\0b"}]}, key="z")
    counts = agent.post(
        path,
        {"items": [{"key": "i-0", "state": "failed"}, {"key": "i-1", "state": "done"}]},
        key="a",
    )
    assert (counts.json()["pending"], counts.json()["done"], counts.json()["failed"]) == (1, 1, 1)
    page = agent.get(path).json()
    assert [(item["key"], item["state"]) for item in page["items"]] == [
        ("i-0", "failed"),
        ("i-1", "done"),
        ("i-2", "pending"),
    ]
    assert Item.objects.count() == 3


@pytest.mark.parametrize(
    "items",
    [
        [],
        [{"key": "i"}],
        [{"key": "i", "state": "lost"}],
        [{"key": "a\0", "state": "done"}],
        [{"state": "done"}],
    ],
    ids=str,
)
def test_an_invalid_item_is_refused(
    agent: Caller, make_task: Callable[..., dict[str, Any]], items: list[dict[str, Any]]
) -> None:
    assert code(agent.post(f"/tasks/{make_task()['id']}/items", {"items": items})) == (
        422,
        "invalid",
    )
    assert Item.objects.count() == 0


def test_a_task_takes_a_thousand_items_at_once_and_ten_thousand_in_all(
    agent: Caller, make_task: Callable[..., dict[str, Any]]
) -> None:
    path = f"/tasks/{make_task()['id']}/items"

    def put(start: int, number: int) -> Any:
        items = [{"key": f"i-{n}", "state": "done"} for n in range(start, start + number)]
        return agent.post(path, {"items": items})

    assert code(put(0, 1001)) == (422, "invalid")
    for start in range(0, 10_000, 1000):
        assert put(start, 1000).status_code == 200
    assert code(put(10_000, 1)) == (422, "too_many_items")
    assert Item.objects.count() == 10_000
    assert put(5, 1).json()["done"] == 10_000


def test_reports_may_contain_more_items_than_a_page_lists(
    agent: Caller, make_task: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions.items.MAX_TASK_ITEMS", 2)
    task = make_task()
    path = f"/tasks/{task['id']}/items"
    assert (
        agent.post(
            path, {"items": [{"key": f"i-{n}", "state": "done"} for n in range(2)]}
        ).status_code
        == 200
    )
    fact = {"id": "e-1", "kind": "item.done", "session": "s-1", "task": task["key"], "item": "i-2"}
    assert agent.post("/events", [fact]).json()["accepted"] == 1
    listed = agent.get(path).json()
    assert [item["key"] for item in listed["items"]] == ["i-0", "i-1"]
    assert listed["done"] == 3


def test_tasks_are_listed_newest_first(
    agent: Caller, make_task: Callable[..., dict[str, Any]]
) -> None:
    tasks = [make_task(f"t-{number}") for number in range(3)]
    page = agent.get(f"/sessions/{tasks[0]['session']}/tasks", limit=2).json()
    assert [task["key"] for task in page["items"]] == ["t-2", "t-1"]
    rest = agent.get(f"/sessions/{tasks[0]['session']}/tasks", limit=2, after=page["next"]).json()
    assert [task["key"] for task in rest["items"]] == ["t-0"]
    assert agent.get(f"/tasks/{tasks[0]['id']}/items").json() == {
        "items": [],
        "pending": 0,
        "done": 0,
        "failed": 0,
    }


def test_a_reported_description_does_not_stand_in_the_way_of_the_opening(agent: Caller) -> None:
    started = {"id": "r-1", "kind": "session.started", "session": "s-1", "title": "Seen in a log"}
    assert agent.report([started]).status_code == 200
    answer = agent.post("/sessions", {"key": "s-1", "title": "Release 12", "mode": "leased"})
    assert answer.status_code == 201, answer.text
    stored = Session.objects.get(key="s-1")
    assert (stored.title, stored.mode) == ("Release 12", "leased")
    # A command's description is not replaced, by a command or a report.
    assert agent.post("/sessions", {"key": "s-1", "title": "Other"}).status_code == 409
    agent.report([{**started, "id": "r-2", "producer_seq": 0}])
    stored.refresh_from_db()
    assert stored.title == "Release 12"
