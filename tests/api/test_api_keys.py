"""Idempotency: what a key protects, what consumes it, and what a second 2xx may contain."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, connections

from api import idempotency
from api.models import StoredResponse
from db import triggers
from journal.models import Body, Entry
from ledger.models import Attempt, Effect
from sessions.models import Artifact, Item, Session, Task
from tests.api.api_client import Caller, code, new_key

SHA256 = "0" * 64


@pytest.fixture
def effect(agent: Caller) -> dict[str, Any]:
    """Return a dispatched effect."""
    agent.session("s-1")
    planned = agent.plan()
    return agent.dispatch(planned)


@pytest.fixture
def task(agent: Caller, effect: dict[str, Any]) -> dict[str, Any]:
    created: dict[str, Any] = agent.post(
        f"/sessions/{effect['session']}/tasks", {"key": "t", "title": "build"}
    ).json()
    return created


# Every command: its path, its content, and other content of the same shape.
COMMANDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "open a session": ("/sessions", {"key": "s-2"}, {"key": "s-3"}),
    "end a session": ("/sessions/{session}/end", {"status": "completed"}, {"status": "failed"}),
    "create a task": ("/sessions/{session}/tasks", {"key": "t-2"}, {"key": "t-3"}),
    "change a task": ("/tasks/{task}/change", {"state": "running"}, {"state": "blocked"}),
    "finish a task": ("/tasks/{task}/done", {}, {}),
    "put items": (
        "/tasks/{task}/items",
        {"items": [{"key": "i", "state": "done"}]},
        {"items": [{"key": "i", "state": "failed"}]},
    ),
    "plan": (
        "/effects",
        {"session": "s-1", "effect_key": "e-2", "tool": "t"},
        {"session": "s-1", "effect_key": "e-3", "tool": "t"},
    ),
    "acknowledge": (
        "/effects/{effect}/acknowledge",
        {"attempt": 1, "outcome": "ok"},
        {"attempt": 1, "outcome": "error"},
    ),
    "fail": (
        "/effects/{effect}/fail",
        {"attempt": 1, "reason": "error"},
        {"attempt": 1, "reason": "timeout"},
    ),
    "record an artifact": (
        "/artifacts",
        {"session": "s-1", "type": "log", "sha256": SHA256, "size": 1, "media_type": "text/plain"},
        {"session": "s-1", "type": "log", "sha256": SHA256, "size": 2, "media_type": "text/plain"},
    ),
}
# Row counts that change when a command is executed again.
COUNTED = (Session, Task, Item, Effect, Attempt, Artifact, StoredResponse)


def counts() -> list[int]:
    return [model.objects.count() for model in (*COUNTED, Entry)]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_executed_once_and_answered_twice(
    agent: Caller, effect: dict[str, Any], task: dict[str, Any], name: str
) -> None:
    path, body, other = COMMANDS[name]
    path = path.format(session=effect["session"], effect=effect["id"], task=task["id"])
    refused = agent.client.post(path, json=body)
    assert code(refused) == (400, "idempotency_key_missing")
    key = new_key()
    assert code(agent.post(path, {**body, "unheard_of": 1}, key=key)) == (
        422,
        "invalid",
    )  # the key is not consumed
    assert code(agent.raw(path, b"{", Idempotency_Key=key)) == (422, "json_syntax")
    first = agent.post(path, body, key=key)
    assert first.status_code in (200, 201), first.text
    assert "idempotent-replay" not in first.headers
    counts_before = counts()
    again = agent.post(path, body, key=key)
    if name == "plan":
        assert again.status_code == 200
        assert "idempotent-replay" not in again.headers
    else:
        assert again.status_code == first.status_code
        assert again.headers["idempotent-replay"] == "true"
    assert again.json() == first.json()
    assert counts() == counts_before
    if other == body:
        return
    conflicts = Entry.objects.filter(kind="integrity.conflict").count()
    for _ in range(2):  # the same conflict twice is one piece of evidence
        reused = agent.post(path, other, key=key)
        assert code(reused) == (422, "key_reuse")
    assert Entry.objects.filter(kind="integrity.conflict").count() == conflicts + 1
    assert counts()[:-1] == counts_before[:-1]


def test_a_key_belongs_to_one_command_whatever_its_path(
    agent: Caller, effect: dict[str, Any]
) -> None:
    key = new_key()
    assert agent.post(
        f"/effects/{effect['id']}/acknowledge", {"attempt": 1, "outcome": "ok"}, key=key
    ).is_success
    assert code(agent.post("/sessions", {"key": "s-9"}, key=key)) == (422, "key_reuse")
    other = agent.plan("e-2", turn="2")
    used = agent.post(
        f"/effects/{other['id']}/dispatch", {"process": "p", "arguments": {"ref": "main"}}, key=key
    )
    assert code(used) == (422, "key_reuse")
    assert Session.objects.count() == 1
    assert Attempt.objects.count() == 1


def test_equal_content_on_another_object_is_another_command(
    agent: Caller, effect: dict[str, Any]
) -> None:
    other = agent.dispatch(agent.plan("e-2", arguments={"ref": "dev"}))
    key = new_key()
    body = {"attempt": 1, "outcome": "ok"}
    assert agent.post(f"/effects/{effect['id']}/acknowledge", body, key=key).status_code == 200
    assert code(agent.post(f"/effects/{other['id']}/acknowledge", body, key=key)) == (
        422,
        "key_reuse",
    )
    assert Effect.objects.get(id=other["id"]).state == "dispatched"


@pytest.mark.parametrize("key", ["", "k" * 65, "two parts", "two\tparts", " ", "\x7f"])
def test_an_invalid_key_is_refused(agent: Caller, key: str) -> None:
    answer = agent.client.post("/sessions", json={"key": "s"}, headers={"Idempotency-Key": key})
    assert answer.status_code == 400
    assert answer.json()["code"] in ("idempotency_key_missing", "idempotency_key_invalid")
    assert Session.objects.count() == 0


def test_a_key_of_sixty_four_characters_becomes_the_entrys_id(agent: Caller) -> None:
    assert agent.post("/sessions", {"key": "s"}, key="k" * 64).status_code == 201
    entry = Entry.objects.get(kind="session.started")
    assert (entry.event_id, entry.source, entry.lane) == ("k" * 64, "tester", "command")


def test_a_token_is_no_key(agent: Caller) -> None:
    refused = agent.post("/sessions", {"key": "s"}, key=agent.token)
    assert code(refused) == (400, "idempotency_key_invalid")
    assert not Entry.objects.filter(event_id__contains="gbk_").exists()


def test_a_refusal_does_not_consume_its_key(agent: Caller, effect: dict[str, Any]) -> None:
    key = new_key()
    planned = agent.plan("e-2", arguments={"n": 2})
    path = f"/effects/{planned['id']}/acknowledge"
    assert code(agent.post(path, {"attempt": 1, "outcome": "ok"}, key=key)) == (
        409,
        "NOT_DISPATCHED",
    )
    agent.dispatch(planned)
    assert agent.post(path, {"attempt": 1, "outcome": "ok"}, key=key).status_code == 200


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "plan"])
def test_after_its_answer_was_pruned_a_command_is_still_done_once(
    agent: Caller, effect: dict[str, Any], task: dict[str, Any], name: str
) -> None:
    path, body, other = COMMANDS[name]
    path = path.format(session=effect["session"], effect=effect["id"], task=task["id"])
    key = new_key()
    first = agent.post(path, body, key=key)
    assert idempotency.prune_responses(keep_us=-1_000_000) >= 1
    assert StoredResponse.objects.count() == 0
    counts_before = counts()
    again = agent.post(path, body, key=key)
    assert again.status_code == 200
    assert again.headers["idempotent-replay"] == "true"
    assert "no longer stored" in again.json()["detail"]
    assert again.json().get("id") == first.json().get("id", first.json().get("task"))
    assert counts() == counts_before
    if other != body:
        assert code(agent.post(path, other, key=key)) == (422, "key_reuse")


def test_pruning_deletes_only_old_answers(agent: Caller) -> None:
    agent.session("s-1")
    assert idempotency.prune_responses() == 0
    assert StoredResponse.objects.count() == 1


def test_stored_answers_contain_no_text_of_the_agent(agent: Caller, effect: dict[str, Any]) -> None:
    agent.post(
        f"/effects/{effect['id']}/acknowledge",
        {"attempt": 1, "outcome": "ok", "result": "a long story", "external_reference": "r"},
    )
    assert not StoredResponse.objects.filter(body__contains="story").exists()
    assert all(len(answer.body) <= 1024 for answer in StoredResponse.objects.all())


def test_an_answer_too_long_to_keep_is_built_from_stored_rows(agent: Caller) -> None:
    agent.session("s-1")
    effect = agent.plan("é" * 300, turn="t" * 200)
    agent.dispatch(effect)
    key = new_key()
    body = {"attempt": 1, "outcome": "ok", "external_reference": "\u20ac" * 300}
    path = f"/effects/{effect['id']}/acknowledge"
    first, again = agent.post(path, body, key=key), agent.post(path, body, key=key)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json()["id"] == effect["id"]


# --- no answer before its commit ------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_2xx_is_sent_only_after_the_commit(
    transactional_db: None, call: Callable[..., Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = call()
    session = agent.session("s-1")
    before = counts()
    commands: dict[str, tuple[str, Any]] = {
        "session": ("/sessions", {"key": "s-2"}),
        "plan": ("/effects", {"session": "s-1", "effect_key": "e", "tool": "t"}),
        "batch": (
            "/events",
            [{"id": "f-1", "kind": "task.created", "session": "s-1", "task": "t"}],
        ),
        "end": (f"/sessions/{session['id']}/end", {"status": "failed"}),
    }
    keys = {name: new_key() for name in commands}
    for error in (OperationalError, DatabaseError):

        def fails(self: Any, error: type[DatabaseError] = error) -> None:
            raise error("the disk is full")

        monkeypatch.setattr(type(connections["default"]), "_commit", fails)
        for name, (path, body) in commands.items():
            answer = agent.post(path, body, key=keys[name])
            assert code(answer) in ((503, "unavailable"), (500, "server_error"))
            if answer.status_code == 503:
                assert answer.headers["retry-after"]
        monkeypatch.undo()
        assert counts() == before
    for name, (path, body) in commands.items():
        answer = agent.post(path, body, key=keys[name])  # the keys were not consumed
        assert answer.status_code in (200, 201), answer.text
        assert "idempotent-replay" not in answer.headers
    assert Session.objects.get(key="s-1").status == "failed"
    _clear()


def _clear() -> None:
    """Allow the flush after a test with real transactions; its post_migrate recreates the triggers."""
    triggers.drop_for_test_flush(connection)


def test_bodies_are_stored_once(agent: Caller) -> None:
    key = new_key()
    agent.session("s-1")
    for _ in range(3):
        agent.post("/effects", {"session": "s-1", "effect_key": "e", "tool": "t"}, key=key)
    assert Body.objects.filter(text__contains='"effect_key":"e"').count() == 1
