"""Fixtures of the journal's tests."""

from django.db import connection

from tests.journal.committed import committed

__all__ = ["committed"]

# Each database has its own statements and ways to bypass a trigger.
collect_ignore = (
    ["test_triggers_on_postgresql.py", "test_body_partitions.py"]
    if connection.vendor == "sqlite"
    else ["test_triggers_on_sqlite.py"]
)
