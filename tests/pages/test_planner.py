"""The figures that SQLite's planner goes by."""

import pytest
from django.db.models import Model

from approvals.models import Gate
from inquiry import planner
from journal.models import Entry
from ledger.models import Effect


@pytest.mark.parametrize("table", [Effect, Gate, Entry])
def test_every_index_has_its_figures(table: type[Model]) -> None:
    assert {index.name for index in table._meta.indexes} <= planner.TABLES[table._meta.db_table].keys()
