"""The processor that long reads share on SQLite comes back, whatever becomes of the read."""

import os
from sqlite3 import ProgrammingError

import pytest
from django.db import connection
from pytest_django import Settings

from inquiry import patience, slices, turns
from tests.journal.committed import committed

__all__ = ["committed"]
LONG = "WITH RECURSIVE up(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 300000) SELECT max(n) FROM up"


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL works in processes of its own")
def test_whose_connection_is_lost_lets_the_processor_go_too(committed: None, settings: Settings) -> None:
    settings.GATEBOOK_SEARCH_TIMEOUT_S = 60.0

    def lost() -> None:
        with patience.limit(7):
            with connection.cursor() as cursor:
                cursor.execute(LONG)
            assert slices._at_work != [None]
            connection.close()

    with pytest.raises(ProgrammingError, match="closed"):
        lost()
    assert slices._at_work == [None]


@pytest.mark.parametrize(("processors", "said", "number"), [(1, 0, 1), (2, 0, 1), (3, 0, 2), (64, 0, 2), (2, 5, 5)])
def test_searches_leave_a_processor_to_those_who_write(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, processors: int, said: int, number: int
) -> None:
    settings.GATEBOOK_SEARCH_PLACES = said
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    assert turns.places() == (number if said or connection.vendor == "postgresql" else 2)
