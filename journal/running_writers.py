"""Transactions that write to the journal and still run: what may yet appear below a position.

PostgreSQL assigns a position before its transaction commits, so an entry may appear below others
that were visible before. An INSERT locks the table before it takes its first position, and the
lock lasts until the commit is visible. So once the transactions that held this lock when a position
was visible have ended, no entry will ever appear up to that position. This asks nothing of
transaction ids, which start again when a dump is restored into another cluster, and waits for no
transaction that does not write to the journal. SQLite has one writer: positions follow the commits.
"""

import time
from typing import Final

from django.db import connection

from db import raw_sql

LAST_POSITION: Final = "SELECT position FROM journal_entry ORDER BY position DESC LIMIT 1"
# The lock of an INSERT. A transaction that still waits for it has taken no position.
RUNNING_WRITERS: Final = (
    "SELECT DISTINCT virtualtransaction FROM pg_locks WHERE locktype = 'relation'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND relation = 'journal_entry'::regclass AND mode = 'RowExclusiveLock' AND granted"
    " AND pid IS DISTINCT FROM pg_backend_pid()"
)
_WAIT_S: Final = 1.0
_LOOK_S: Final = 0.02


def wait_until_stable(position: int) -> int:
    """Wait until no entry can appear up to a visible `position`; return it, or 0 after a second.

    For jobs that read every entry once: what appears below the position that they stored is lost
    for them. Must run outside a long transaction of the caller.
    """
    ends = time.monotonic() + _WAIT_S
    writers = load_running_writers()
    while writers:
        if time.monotonic() > ends:
            return 0
        time.sleep(_LOOK_S)
        writers &= load_running_writers()
    return position


def load_last_position() -> int:
    """Return the last visible position, 0 if there is none. One index probe."""
    rows = raw_sql.fetch_rows(LAST_POSITION)
    return int(rows[0][0]) if rows else 0


def load_running_writers() -> frozenset[str]:
    """Return the other transactions that write to the journal and still run.

    Call it after `load_last_position`. Empty on SQLite.
    """
    if connection.vendor != "postgresql":
        return frozenset()
    return frozenset(name for (name,) in raw_sql.fetch_rows(RUNNING_WRITERS))
