"""Each plan checks for an open effect of its intent, by an index of open effects."""

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
    connection.vendor != "sqlite", reason="SQLite uses a partial index only for its exact condition"
)
def test_the_check_of_open_intents_uses_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_lines: list[str] = []

    def record(text: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {text}", parameters)
            plan_lines.extend(row[-1] for row in cursor.fetchall())
        return []

    monkeypatch.setattr(raw_sql, "fetch_rows", record)
    identity = uuid.uuid4()
    commands._load_related(identity, Plan(identity, "e", "t", "v1:0", {}))
    assert any("effect_open_intent" in line for line in plan_lines), plan_lines
    assert not any(line.startswith("SCAN") for line in plan_lines), plan_lines


@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="SQLite uses a partial index only for its exact condition"
)
def test_open_effects_of_a_session_are_read_by_the_index(agent: Caller) -> None:
    """Resuming a session with 100,000 effects is as fast as with 100."""
    agent.session("s-1")
    agent.dispatch(agent.plan())
    statements: list[tuple[str, Any]] = []

    def record(execute: Any, text: str, parameters: Any, many: bool, context: Any) -> Any:
        if "ledger_effect" in text and "state" in text.partition(" WHERE ")[2]:
            statements.append((text, parameters))
        return execute(text, parameters, many, context)

    with connection.execute_wrapper(record):
        assert detectors.active_findings(Session.objects.get(), 1) == []
    ((text, parameters),) = statements
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {text}", parameters)
        assert "effect_open_intent" in cursor.fetchone()[-1]
