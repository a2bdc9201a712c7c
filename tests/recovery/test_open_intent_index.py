"""Every plan asks whether its intent is open: by an index of the open, however many effects a session has."""

import uuid
from typing import Any

import pytest
from django.db import connection

from journal import sql
from ledger import commands
from ledger.commands import Plan

pytestmark = pytest.mark.django_db


@pytest.mark.skipif(connection.vendor != "sqlite", reason="SQLite takes a partial index only by its very words")
def test_the_guard_of_open_intents_reads_by_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def kept(text: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {text}", parameters)
            asked.extend(row[-1] for row in cursor.fetchall())
        return []

    monkeypatch.setattr(sql, "rows", kept)
    identity = uuid.uuid4()
    commands._related(identity, Plan(identity, "e", "t", "v1:0", {}))
    assert any("effect_open_intent" in line for line in asked), asked
    assert not any(line.startswith("SCAN") for line in asked), asked
