"""The settled position of the journal: no running transaction wrote below it."""

from typing import Final

from django.db import connection
from django.db.models import BigIntegerField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce

_LAST: Final = {
    # A visible row beyond the snapshot is of another cluster: a restored dump kept its number.
    "postgresql": (
        "SELECT position FROM journal_entry WHERE txid < pg_snapshot_xmin(pg_current_snapshot())"
        " OR (txid >= pg_snapshot_xmax(pg_current_snapshot())"
        " AND txid IS DISTINCT FROM pg_current_xact_id_if_assigned())"
        " ORDER BY position DESC LIMIT 1"
    ),
    "sqlite": "SELECT position FROM journal_entry ORDER BY position DESC LIMIT 1",
}


def load_settled_position() -> int:
    """Return the last settled position, 0 if there is none. One index probe.

    SQLite has one writer, so positions follow the commit order. PostgreSQL assigns positions
    before commit: an entry is settled when every transaction up to its own has ended. A later
    transaction that is still running may hold a lower position, which then appears below this one.
    """
    with connection.cursor() as cursor:
        cursor.execute(_LAST[connection.vendor])
        row = cursor.fetchone()
    return int(row[0]) if row else 0


def settled_position_column() -> Coalesce:
    """Return the same as a column, which is never newer than what is read later."""
    query = _LAST[connection.vendor]
    return Coalesce(RawSQL(query, [], output_field=BigIntegerField()), 0)  # noqa: S611  # a constant
