"""Checkpoints: stored, pruned, and never required for recovery."""

from typing import Any

import pytest
from django.db import transaction

from accounts.models import Project
from db.clock import now_us
from journal import erasures
from journal.models import Body, Entry
from sessions import checkpoints
from sessions.models import Checkpoint, Session
from tests.api.api_client import Caller, code


@pytest.fixture
def path(agent: Caller) -> str:
    return f"/sessions/{agent.session()['id']}/checkpoints"


def summaries(agent: Caller, path: str) -> list[Any]:
    return [checkpoint["summary"] for checkpoint in agent.get(path).json()["items"]]


def test_a_checkpoint_is_stored_with_all_its_fields(agent: Caller, path: str) -> None:
    fields = {
        "summary": "half of it is migrated",
        "cache_keys": ["prompt/7f"],
        "cursor": "batch-2",
        "pins": {"schema": "8", "model": "m-1"},
        "state": {"seen": [1, 2], "note": "a\0b"},
    }
    created = agent.post(path, fields)
    assert created.status_code == 201
    checkpoint = agent.get(f"/checkpoints/{created.json()['id']}").json()
    assert {name: checkpoint[name] for name in fields} == fields
    row = Checkpoint.objects.get()
    assert (row.cursor, row.cache_keys, row.pins) == (
        "batch-2",
        ["prompt/7f"],
        {"schema": "8", "model": "m-1"},
    )
    assert row.size == checkpoint["bytes"] == created.json()["bytes"] > 100
    assert Entry.objects.get(kind="checkpoint.written").position == row.opened_position
    assert "state" not in agent.get(path).json()["items"][0]


def test_the_cursor_of_a_checkpoint_becomes_that_of_the_session(agent: Caller, path: str) -> None:
    before = Session.objects.get()
    agent.post(path, {"summary": "no cursor"})
    assert Session.objects.get().version == before.version
    agent.post(path, {"cursor": "batch-2"})
    after = agent.get(f"/sessions/{before.id}").json()
    assert (after["cursor"], after["version"]) == ("batch-2", before.version + 1)


def test_the_latest_five_are_kept(agent: Caller, path: str) -> None:
    ids = [
        agent.post(path, {"summary": str(number)}, key=f"{9 - number}").json()["id"]
        for number in range(7)
    ]
    assert summaries(agent, path) == ["6", "5", "4", "3", "2"]
    assert Checkpoint.objects.count() == 5
    assert code(agent.get(f"/checkpoints/{ids[1]}")) == (404, "not_found")
    assert agent.get(f"/checkpoints/{ids[2]}").json()["summary"] == "2"
    assert (
        Entry.objects.filter(kind="checkpoint.written").count() == 7
    )  # the journal keeps all entries


def test_pruning_one_session_keeps_the_checkpoints_of_others(agent: Caller, path: str) -> None:
    other = f"/sessions/{agent.session('s-2')['id']}/checkpoints"
    agent.post(path, {"summary": "alone"})
    for number in range(6):
        agent.post(other, {"summary": str(number)})
    assert (summaries(agent, path), len(summaries(agent, other))) == (["alone"], 5)


def test_a_repeated_request_gets_the_same_checkpoint(agent: Caller, path: str) -> None:
    first = agent.post(path, {"summary": "one"}, key="k")
    again = agent.post(path, {"summary": "one"}, key="k")
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotent-replay"] == "true"
    assert code(agent.post(path, {"summary": "two"}, key="k")) == (422, "key_reuse")
    assert Checkpoint.objects.count() == 1


def test_it_has_at_most_64_kib(agent: Caller, path: str) -> None:
    free_bytes = checkpoints.MAX_CHECKPOINT_BYTES - len('{"state":""}')
    assert (
        agent.post(path, {"state": "x" * free_bytes}).json()["bytes"]
        == checkpoints.MAX_CHECKPOINT_BYTES
    )
    assert code(agent.post(path, {"state": "x" * (free_bytes + 1)})) == (
        413,
        "checkpoint_too_large",
    )
    assert code(agent.post(path, {"pins": {"": "1"}})) == (422, "invalid")
    assert code(agent.post(path, {"mood": "good"})) == (422, "invalid")
    assert Checkpoint.objects.count() == 1


def test_checkpoints_of_another_project_are_not_found(
    agent: Caller, stranger: Caller, path: str
) -> None:
    created = agent.post(path, {"summary": "ours"}).json()
    assert code(stranger.get(path)) == (404, "not_found")
    assert code(stranger.get(f"/checkpoints/{created['id']}")) == (404, "not_found")
    assert code(stranger.post(path, {"summary": "theirs"})) == (404, "not_found")


def test_an_erased_checkpoint_says_so_and_has_no_text(agent: Caller, path: str) -> None:
    created = agent.post(path, {"summary": "on Ann's behalf", "state": {"name": "Ann"}}).json()
    with transaction.atomic():
        project = Project.objects.get(name="default").id
        erasures.erase_body(
            project, created["position"], reason="request", actor="tests", now_us=now_us()
        )
    checkpoint = agent.get(f"/checkpoints/{created['id']}").json()
    assert (checkpoint["summary"], checkpoint["state"], checkpoint["erased"]) == (None, None, True)
    assert not Body.objects.filter(text__contains="Ann").exists()


def test_secrets_are_redacted_before_a_checkpoint_is_stored(agent: Caller, path: str) -> None:
    secret = "Bearer 0123456789abcdef0123456789abcdef"
    agent.post(path, {"state": {"headers": {"Authorization": secret}}})
    assert secret not in Body.objects.get(entry__kind="checkpoint.written").text


def test_deleting_all_checkpoints_loses_nothing(agent: Caller, path: str) -> None:
    """Effects, tasks, items and decisions tell a worker all it needs, with and without checkpoints."""
    session = Session.objects.get()
    task = agent.post(f"/sessions/{session.id}/tasks", {"key": "t"}).json()
    items = [{"key": "a", "state": "done"}, {"key": "b", "state": "pending"}]
    agent.post(f"/tasks/{task['id']}/items", {"items": items})
    agent.dispatch(agent.plan("e-1"))
    agent.plan("e-2", arguments={"ref": "other"})
    agent.post(f"/sessions/{session.id}/decisions", {"key": "d", "choice": "left"})
    agent.post(path, {"summary": "e-1 is done, b is done", "cursor": "the end"})  # a false claim

    def load_state() -> list[Any]:
        questions = (
            "/effects?session=s-1",
            f"/sessions/{session.id}/tasks",
            f"/tasks/{task['id']}/items",
        )
        resume = agent.get(f"/sessions/{session.id}/resume").json()
        assert (resume["working_state"].pop("checkpoint") is None) == (
            not Checkpoint.objects.exists()
        )
        del resume["now_us"]
        answers = [agent.get(question).json() for question in questions]
        return [*answers, resume, agent.get(f"/sessions/{session.id}/decisions?open=1").json()]

    before = load_state()
    Checkpoint.objects.all().delete()
    assert load_state() == before
    assert [effect["state"] for effect in before[0]["items"]] == ["planned", "dispatched"]
    assert summaries(agent, path) == []
    assert agent.post(path, {"summary": "anew"}).status_code == 201


def test_the_latest_five_reports_are_kept_in_every_order(agent: Caller) -> None:
    fact = {"kind": "checkpoint.written"}
    numbered = [fact | {"summary": str(n), "producer_seq": n} for n in range(8)]
    up = [report | {"id": f"u-{n}", "session": "s-up"} for n, report in enumerate(numbered)]
    assert agent.report(up).status_code == 200
    for n in reversed(range(8)):
        assert (
            agent.report([numbered[n] | {"id": f"d-{n}", "session": "s-down"}]).status_code == 200
        )
    for key in ("s-up", "s-down"):
        session = Session.objects.get(key=key)
        assert summaries(agent, f"/sessions/{session.id}/checkpoints") == ["7", "6", "5", "4", "3"]
