"""Removes erased text from the database's files, as far as the database allows.

SQLite: `secure_delete`, a merge of the full-text index, VACUUM, and a checkpoint that truncates the
write-ahead log. PostgreSQL: VACUUM FULL of the changed tables, which locks each of them while it is
rewritten; tables above a size wait for `manage.py vacuum_erased`. The write-ahead log, replicas and
backups of PostgreSQL keep old bytes until they are recycled (docs/how-to/operating.md).
"""

from collections.abc import Sequence
from typing import Final

import structlog
from django.db import connection

from db import raw_sql
from investigation.fulltext import store

log = structlog.get_logger("gatebook.erasure")
# The job rewrites tables up to this size: about a second of exclusive lock.
MAX_FULL_BYTES: Final = 64 * 1024 * 1024
_FTS_TABLE: Final = "investigation_effecttext"


def prepare_connection() -> None:
    """Make SQLite overwrite what this connection deletes."""
    if connection.vendor == "sqlite":
        raw_sql.fetch_rows("PRAGMA secure_delete = ON")


def scrub_storage(tables: Sequence[str], *, most_bytes: int | None = MAX_FULL_BYTES) -> bool:
    """Rewrite the files; return False if something must be repeated later.

    Call it outside of a transaction.
    """
    if connection.vendor == "sqlite":
        return _scrub_sqlite()
    return _scrub_postgresql([*tables], most_bytes)


def _scrub_sqlite() -> bool:
    prepare_connection()
    store.purge_erased_words()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        busy, _, _ = cursor.fetchone()
    if busy:  # a reader holds an older state; the next run tries again
        log.info("scrub_waits_for_readers")
    return not busy


def _scrub_postgresql(tables: list[str], most_bytes: int | None) -> bool:
    is_complete = True
    with connection.cursor() as cursor:
        for table in [*tables, *_related_tables(tables)]:
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
                is_complete = False
                continue
            name = connection.ops.quote_name(table)
            # Statistics hold frequent values: they are computed again from what is left.
            cursor.execute(f"VACUUM (FULL, ANALYZE) {name}")
        if is_complete:
            _rewrite_statistics(cursor)
            cursor.execute("CHECKPOINT") if _is_superuser(cursor) else None
    return is_complete


def _related_tables(tables: Sequence[str]) -> list[str]:
    """Return tables whose rows go by triggers or with others."""
    related = {_FTS_TABLE, "api_storedresponse", "ledger_usednameplan", "ledger_usedname"}
    related |= {"investigation_fieldvalue", "django_session", "auth_user"}
    related |= {"investigation_alert", "investigation_alertchannel"}
    return sorted(related - set(tables))


def _rewrite_statistics(cursor: object) -> None:
    """Rewrite PostgreSQL's own table of frequent values, where the role may."""
    if _is_superuser(cursor):
        cursor.execute("VACUUM FULL pg_catalog.pg_statistic")  # type: ignore[attr-defined]


def _is_superuser(cursor: object) -> bool:
    cursor.execute("SELECT current_setting('is_superuser') = 'on'")  # type: ignore[attr-defined]
    return bool(cursor.fetchone()[0])  # type: ignore[attr-defined]
