"""Concurrent requests with real commits: a key sends one message, and each agent reads it once."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from accounts import agents, projects, tokens
from journal.models import Entry
from sessions.models import Capacity, Message, MessageRead
from tests.api.api_client import Caller, new_key
from tests.journal.committed import committed, together

__all__ = ["committed"]
MANY = 6


@pytest.fixture
def agent(committed: None) -> Callable[[str], Caller]:
    """Return a factory of agents of the project "default"; every call makes a new client."""
    from config.wsgi import application

    tokens_by_name: dict[str, str] = {}

    def make(name: str) -> Caller:
        if name not in tokens_by_name:
            with transaction.atomic():
                row = agents.ensure_agent(projects.ensure_default_project(), name)
                tokens_by_name[name] = tokens.issue_token(row, expires_in=None, actor="tests")
        return Caller(tokens_by_name[name], app=application)

    return make


def statuses(answers: list[Any]) -> list[int]:
    return sorted(answer.status_code for answer in answers)


def test_one_key_sends_one_message(agent: Callable[[str], Caller]) -> None:
    key, body = new_key(), {"to": "shared", "body": "once"}
    answers = together(
        *[partial(agent("sender").post, "/messages", body, key=key) for _ in range(MANY)]
    )
    assert statuses(answers) == [201] * MANY
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert Message.objects.count() == 1


def test_marking_under_many_keys_is_one_read_mark_for_each_agent(
    agent: Callable[[str], Caller],
) -> None:
    shared = agent("sender").post("/messages", {"to": "shared", "body": "to all"}).json()["id"]
    own = agent("sender").post("/messages", {"to": "sender", "body": "to me"}).json()["id"]
    readers = [agent(name) for name in ("sender", "second") for _ in range(MANY)]
    marks = [partial(reader.post, f"/messages/{shared}/read") for reader in readers]
    marks += [partial(agent("sender").post, f"/messages/{own}/read") for _ in range(MANY)]
    assert statuses(together(*marks)) == [200] * len(marks)
    assert sorted(MessageRead.objects.values_list("agent__name", flat=True)) == ["second", "sender"]
    assert Entry.objects.filter(kind="message.read").count() == 3


def test_reports_of_capacity_at_once_leave_one_row(agent: Callable[[str], Caller]) -> None:
    reports = [
        partial(agent("sender").post, "/capacity", {"queue": number}) for number in range(MANY)
    ]
    assert statuses(together(*reports)) == [200] * MANY
    assert Capacity.objects.count() == 1
    assert Entry.objects.filter(kind="capacity.reported").count() == MANY
