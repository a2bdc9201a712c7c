"""The figures that SQLite's planner goes by."""

from inquiry import planner
from ledger.models import Effect


def test_every_index_of_effects_has_its_figures() -> None:
    assert {index.name for index in Effect._meta.indexes} <= planner.EFFECTS.keys()
