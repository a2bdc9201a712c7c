"""A journal of PostgreSQL that continues at a far position, so that a test needs few entries."""

from collections.abc import Callable, Iterator

import pytest

from db import raw_sql

RANGE = 1 << 20  # positions of a partition
Jump = Callable[[int], object]


@pytest.fixture
def jump() -> Iterator[Jump]:
    """Let the journal continue at a position; no rollback takes a sequence back."""
    text = "SELECT setval('journal_entry_position_seq', %s)"
    ((before,),) = raw_sql.fetch_rows("SELECT last_value FROM journal_entry_position_seq")
    yield lambda position: raw_sql.fetch_rows(text, [position])
    raw_sql.fetch_rows(text, [before])
