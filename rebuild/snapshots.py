"""Read a batch as of one moment, while others write."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def read_one_snapshot() -> Iterator[None]:
    """Let all reads of the block see one moment.

    PostgreSQL: one snapshot, no locks. SQLite: the one write lock, for as long as the block runs.
    Inside a transaction nothing changes: the caller's counts.
    """
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield
