"""Statistics that SQLite's planner uses."""

import pytest
from django.db import connection
from django.db.models import Model

from approvals.models import Gate, Vote
from db.sqlite import planner_statistics
from journal.models import Entry
from ledger.models import Effect, UsedName, UsedNamePlan
from sessions.models import Artifact, Session, Task

TABLES = [Effect, Gate, Vote, Entry, Session, Task, Artifact, UsedName, UsedNamePlan]


@pytest.mark.parametrize("table", TABLES)
def test_every_index_has_statistics(table: type[Model]) -> None:
    assert {index.name for index in table._meta.indexes} <= planner_statistics.TABLES[
        table._meta.db_table
    ].keys()


@pytest.mark.parametrize("table", [Vote, Entry, Session, Task, Artifact])
def test_indexes_created_by_django_and_sqlite_have_statistics(db: None, table: type[Model]) -> None:
    """Without statistics SQLite takes the index of a foreign key for the narrowest."""
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL keeps its own")
    name = table._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = %s", [name]
        )
        made = {index for (index,) in cursor.fetchall()}
        cursor.execute("SELECT idx FROM sqlite_stat1 WHERE tbl = %s", [name])
        measured = {index for (index,) in cursor.fetchall()}
    assert made == measured == planner_statistics.TABLES[name].keys()


def test_every_table_with_statistics_is_checked() -> None:
    assert {table._meta.db_table for table in TABLES} == planner_statistics.TABLES.keys()
