"""Every plan asks whether its intent is open: by an index of the open, however many effects a
session has."""

import uuid
from typing import Any

import pytest
from django.db import connection

from db import raw_sql
from ledger import commands
from ledger.commands import Plan
from recovery import detectors
from sessions.models import Session
from tests.api.api_client import Caller

pytestmark = pytest.mark.django_db


@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="SQLite takes a partial index only by its very words"
)
def test_the_guard_of_open_intents_reads_by_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def kept(text: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {text}", parameters)
            asked.extend(row[-1] for row in cursor.fetchall())
        return []

    monkeypatch.setattr(raw_sql, "fetch_rows", kept)
    identity = uuid.uuid4()
    commands._load_related(identity, Plan(identity, "e", "t", "v1:0", {}))
    assert any("effect_open_intent" in line for line in asked), asked
    assert not any(line.startswith("SCAN") for line in asked), asked


@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="SQLite takes a partial index only by its very words"
)
def test_what_may_still_be_open_is_read_by_its_index_whoever_asks(agent: Caller) -> None:
    """A session of a hundred thousand effects is taken up as soon as one of a hundred."""
    agent.session("s-1")
    agent.dispatch(agent.plan())
    asked: list[tuple[str, Any]] = []

    def kept(execute: Any, text: str, parameters: Any, many: bool, context: Any) -> Any:
        if "ledger_effect" in text and "state" in text.partition(" WHERE ")[2]:
            asked.append((text, parameters))
        return execute(text, parameters, many, context)

    with connection.execute_wrapper(kept):
        assert detectors.active_findings(Session.objects.get(), 1) == []
    ((text, parameters),) = asked
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {text}", parameters)
        assert "effect_open_intent" in cursor.fetchone()[-1]
