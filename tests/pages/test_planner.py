"""The figures that SQLite's planner goes by."""

import pytest
from django.db import connection
from django.db.models import Model

from approvals.models import Gate, Vote
from db.sqlite import planner_statistics
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Artifact, Session, Task

TABLES = [Effect, Gate, Vote, Entry, Session, Task, Artifact]


@pytest.mark.parametrize("table", TABLES)
def test_every_index_has_its_figures(table: type[Model]) -> None:
    assert {index.name for index in table._meta.indexes} <= planner_statistics.TABLES[
        table._meta.db_table
    ].keys()


@pytest.mark.parametrize("table", [Vote, Entry, Session, Task, Artifact])
def test_those_that_django_and_sqlite_make_have_theirs(db: None, table: type[Model]) -> None:
    """A foreign key's index would else be held for the narrowest of all."""
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL keeps its own")
    name = table._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = %s", [name]
        )
        made = {index for (index,) in cursor.fetchall()}
        cursor.execute("SELECT idx FROM sqlite_stat1 WHERE tbl = %s", [name])
        told = {index for (index,) in cursor.fetchall()}
    assert made == told == planner_statistics.TABLES[name].keys()


def test_every_table_is_looked_at() -> None:
    assert {table._meta.db_table for table in TABLES} == planner_statistics.TABLES.keys()
