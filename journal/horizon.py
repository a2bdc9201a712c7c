"""How far the book can be read: the last position that no running transaction wrote."""

from typing import Final

from django.db import connection
from django.db.models import BigIntegerField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce

_LAST: Final = {
    # A visible row from beyond the snapshot is another cluster's: a dump restored here brought its number along.
    "postgresql": (
        "SELECT position FROM journal_entry WHERE txid < pg_snapshot_xmin(pg_current_snapshot())"
        " OR (txid >= pg_snapshot_xmax(pg_current_snapshot())"
        " AND txid IS DISTINCT FROM pg_current_xact_id_if_assigned())"
        " ORDER BY position DESC LIMIT 1"
    ),
    "sqlite": "SELECT position FROM journal_entry ORDER BY position DESC LIMIT 1",
}


def last_position() -> int:
    """Return the last settled position of the journal, 0 when it is empty. One index probe.

    SQLite has one writer, whose order of commits is the order of positions: nothing comes below it any more. On
    PostgreSQL positions are handed out before they commit; an entry counts when every transaction up to its own has
    ended. A younger one that is still running may hold a lower position, which then appears below this one.
    """
    with connection.cursor() as cursor:
        cursor.execute(_LAST[connection.vendor])
        row = cursor.fetchone()
    return int(row[0]) if row else 0


def as_column() -> Coalesce:
    """The same, read along with a row of another query: what is read after that query is not older."""
    return Coalesce(RawSQL(_LAST[connection.vendor], [], output_field=BigIntegerField()), 0)  # noqa: S611  # our constants
