"""How far the journal can be read, while others write."""

import threading

import pytest
from django.db import connection, transaction

from journal import entries, running_writers
from journal.running_writers import wait_until_stable
from tests.journal.committed import committed as committed
from tests.journal.committed import together
from tests.journal.drafts import draft, new_project

pytestmark = pytest.mark.django_db


def test_a_position_is_stable_when_the_writers_below_it_have_ended(
    committed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction takes a position, and another commits above it: readers must wait."""
    if connection.vendor == "sqlite":
        assert wait_until_stable(7) == 7  # it has one writer
        return
    has_position, may_commit = threading.Event(), threading.Event()

    def write_late() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE journal_entry IN ROW EXCLUSIVE MODE")  # as an INSERT does
            cursor.execute("SELECT nextval('journal_entry_position_seq')")
            has_position.set()
            assert may_commit.wait(30)
            entries.append_entries([draft("late", project=new_project())], 1)

    def read() -> tuple[int, int]:
        assert has_position.wait(30)
        (above,) = entries.append_entries([draft("above", project=new_project())], 1)
        monkeypatch.setattr(running_writers, "_WAIT_S", 0.1)
        early = wait_until_stable(above.position)
        may_commit.set()
        monkeypatch.setattr(running_writers, "_WAIT_S", 30.0)
        return early, wait_until_stable(above.position) - above.position

    assert together(write_late, read)[1] == (0, 0)
