"""Removes erased text from the database's files, as far as the database allows.

SQLite: `secure_delete`, a merge of the full-text index, VACUUM, and a checkpoint that truncates the
write-ahead log. PostgreSQL: VACUUM FULL of the changed tables, which locks each of them while it is
rewritten; tables above a size wait for `manage.py vacuum_erased`. A rewritten file keeps deleted
rows that a running transaction may still see, even one of another database of the server, because a
snapshot spans all of them: so such transactions must end first. The write-ahead log, replicas and
backups of PostgreSQL keep old bytes until they are recycled (docs/how-to/operating.md).
"""

import time
from collections.abc import Sequence
from typing import Final

import structlog
from django.db import connection

from db import raw_sql, triggers
from investigation.fulltext import store

log = structlog.get_logger("gatebook.erasure")
# The job rewrites tables up to this size: about a second of exclusive lock.
MAX_FULL_BYTES: Final = 64 * 1024 * 1024
WAIT_S: Final = 5.0  # for transactions that may still see what was deleted
_LOOK_S: Final = 0.05
# A change that runs in any database of the server: the snapshot of VACUUM FULL begins before it.
_WAITS: Final = "SELECT pg_snapshot_xmin(pg_current_snapshot()) < %s::xid8"
# The processes of such changes, and of readers of this database with an older snapshot. PostgreSQL
# shows a role only its own ones, unless it has pg_read_all_stats.
_OLDER: Final = (
    "SELECT pid, datname FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    " AND (age(backend_xid) > age(%s::xid8::xid)"
    " OR (datname = current_database() AND age(backend_xmin) > age(%s::xid8::xid)))"
)
_FTS_TABLE: Final = "investigation_effecttext"


def prepare_connection() -> None:
    """Make SQLite overwrite what this connection deletes."""
    if connection.vendor == "sqlite":
        raw_sql.fetch_rows("PRAGMA secure_delete = ON")


def scrub_storage(tables: Sequence[str], *, most_bytes: int | None = MAX_FULL_BYTES) -> str:
    """Rewrite the files; return why it must be repeated later, or an empty text.

    Call it outside of a transaction.
    """
    if connection.vendor == "sqlite":
        return _scrub_sqlite()
    return _scrub_postgresql([*tables], most_bytes)


def _scrub_sqlite() -> str:
    prepare_connection()
    store.purge_erased_words()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        busy, _, _ = cursor.fetchone()
    if busy:  # a reader holds an older state; the next run tries again
        log.info("scrub_waits_for_readers")
    return "Readers held an older state of the file. Run `manage.py vacuum_erased`." if busy else ""


def _scrub_postgresql(tables: list[str], most_bytes: int | None) -> str:
    left = _wait_for_older_transactions()
    if left:
        return left
    partitions = triggers.load_table_partitions(connection)
    files = [part for table in tables for part in partitions.get(table, [table])]
    with connection.cursor() as cursor:
        for table in [*files, *_related_tables(tables)]:
            cursor.execute(
                "SELECT pg_total_relation_size(c.oid), pg_has_role(c.relowner, 'USAGE')"
                " FROM pg_class c WHERE c.oid = to_regclass(%s)",
                [table],
            )
            row = cursor.fetchone()
            if row is None:
                continue
            size, is_owner = row
            if not is_owner or (most_bytes is not None and size > most_bytes):
                left = (
                    "A table is too large for the job. Run `manage.py vacuum_erased`."
                    if is_owner
                    else "Tables belong to another role. Run `manage.py vacuum_erased` with"
                    " DATABASE_OWNER_URL set."
                )
                continue
            name = connection.ops.quote_name(table)
            # Statistics hold frequent values: they are computed again from what is left.
            _delete_statistics(cursor, table)
            cursor.execute(f"VACUUM (FULL, ANALYZE) {name}")
        if not left and _is_superuser(cursor):
            # A partitioned table has no rows of its own, but statistics of all its partitions.
            for table in partitions.keys() & {*tables}:
                _delete_statistics(cursor, table)
                cursor.execute(f"ANALYZE {connection.ops.quote_name(table)}")
            # Statistics were deleted just now, which others may still see.
            left = _wait_for_older_transactions()
            if not left:
                cursor.execute("VACUUM FULL pg_catalog.pg_statistic")
                cursor.execute("CHECKPOINT")
    return left


def _wait_for_older_transactions() -> str:
    """Wait until no transaction may see what is deleted; name those left after `WAIT_S`."""
    ends = time.monotonic() + WAIT_S
    ((now,),) = raw_sql.fetch_rows("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
    while True:
        older = raw_sql.fetch_rows(_OLDER, [now, now])
        if not older and not raw_sql.fetch_rows(_WAITS, [now])[0][0]:
            return ""
        if time.monotonic() > ends:
            names = [f"process {pid} of {database}" for pid, database in older]
            processes = ", ".join(names) or "process unknown to this role"
            log.info("scrub_waits_for_transactions", processes=processes)
            return (
                "A transaction that began before the deletion still runs on this PostgreSQL server"
                f" ({processes}), and keeps the deleted rows. Run `manage.py vacuum_erased` when it"
                " has ended."
            )
        time.sleep(_LOOK_S)


def _related_tables(tables: Sequence[str]) -> list[str]:
    """Return tables whose rows go by triggers or with others."""
    related = {_FTS_TABLE, "api_storedresponse", "ledger_usednameplan", "ledger_usedname"}
    related |= {"investigation_fieldvalue", "django_session", "auth_user"}
    related |= {"investigation_alert", "investigation_alertchannel"}
    return sorted(related - set(tables))


_DELETE_STATISTICS: Final = (
    "DELETE FROM pg_catalog.pg_statistic WHERE starelid = to_regclass(%s) OR starelid IN"
    " (SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = to_regclass(%s))"
)


def _delete_statistics(cursor: object, table: str) -> None:
    """Delete the frequent values of a table, where the role may: ANALYZE keeps those of a table
    that became empty."""
    if _is_superuser(cursor):
        cursor.execute(_DELETE_STATISTICS, [table, table])  # type: ignore[attr-defined]


def _is_superuser(cursor: object) -> bool:
    cursor.execute("SELECT current_setting('is_superuser') = 'on'")  # type: ignore[attr-defined]
    return bool(cursor.fetchone()[0])  # type: ignore[attr-defined]
