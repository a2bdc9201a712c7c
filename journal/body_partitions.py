"""Partitions of journal_body on PostgreSQL, each with the bodies of 2^20 positions.

The job makes empty ones ahead, and drops one when nearly all of its bodies are gone. The owner's
functions of migration 0004 do both. SQLite has no partitions.
"""

from typing import Final, NamedTuple

import structlog
from django.db import DatabaseError, OperationalError, connection, transaction

from db import raw_sql
from journal.running_writers import load_last_position

log = structlog.get_logger("gatebook.retention")
_MOST_KEPT: Final = 5_000  # bodies that journal_drop_body_partition moves
_PARTITIONS: Final = """
SELECT part.relname, substring(bound FROM 'FROM [(]''?([0-9]+)')::bigint,
  substring(bound FROM 'TO [(]''?([0-9]+)')::bigint
FROM pg_inherits JOIN pg_class part ON part.oid = inhrelid,
  LATERAL pg_get_expr(part.relpartbound, part.oid) AS bound
WHERE inhparent = 'journal_body'::regclass ORDER BY 3 NULLS LAST
"""
_COUNT_LEFT: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM journal_body WHERE entry_id >= %s AND entry_id < %s"
    " LIMIT %s) counted"
)
_COUNT_GONE: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM journal_erasure WHERE entry_id >= %s AND entry_id < %s"
    " LIMIT %s) counted"
)
_PREFIX: Final = "journal_body_"


class Partition(NamedTuple):
    """A range of positions from `low` to below `high`."""

    cell: int
    low: int
    high: int


def load_partitions() -> list[Partition]:
    """Return the partitions, the oldest first; none on SQLite."""
    if connection.vendor != "postgresql":
        return []
    return [
        Partition(int(name.removeprefix(_PREFIX)), low or 0, high)
        for name, low, high in raw_sql.fetch_rows(_PARTITIONS)
        if high is not None
    ]


def make_partitions() -> int:
    """Make the partitions that are missing ahead; return how many.

    A transaction that holds a lock delays that to the next run. Raises only if no partition is
    ahead: then bodies go to journal_body_rest, and the pages and /readyz show the failure.
    """
    if connection.vendor != "postgresql":
        return 0
    try:
        with transaction.atomic():
            ((made,),) = raw_sql.fetch_rows("SELECT journal_make_body_partitions()")
    except DatabaseError:
        if load_free_positions() <= 0:
            raise
        log.warning("partitions_wait", exc_info=True)
        return 0
    return int(made)


def load_free_positions() -> int:
    """Return how many positions are left in the partitions that exist."""
    ends = max((partition.high for partition in load_partitions()), default=0)
    return ends - 1 - load_last_position()


def drop_expired_partitions() -> bool:
    """Drop each past partition with few bodies left, which move; return False if one must wait.

    Few are at most 5,000, and at most a tenth of those that are gone. A reader of the table, such
    as a dump, makes it wait for the next run.
    """
    last = load_last_position()
    for cell, low, high in load_partitions():
        if high > last:
            break
        ((left,),) = raw_sql.fetch_rows(_COUNT_LEFT, [low, high, _MOST_KEPT + 1])
        if left > _MOST_KEPT:
            continue
        ((gone,),) = raw_sql.fetch_rows(_COUNT_GONE, [low, high, 10 * left or 1])
        if gone < (10 * left or 1):
            continue
        try:
            with transaction.atomic():
                raw_sql.fetch_rows("SELECT journal_drop_body_partition(%s)", [cell])
        except OperationalError:
            log.warning("partition_drop_waits", low=low, high=high, exc_info=True)
            return False
        log.info("partition_dropped", low=low, high=high, kept=left)
    return True
