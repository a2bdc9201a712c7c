"""Notify all processes when the transaction commits (PostgreSQL NOTIFY).

Does nothing on SQLite. Use it sparingly: PostgreSQL serializes commits that notify.
"""

from collections.abc import Sequence
from typing import Final

from django.db import connection

from journal import sql

CHANNEL: Final = "gatebook_gates"
ALL: Final = "*"  # concerns everyone who waits


def announce(payloads: Sequence[str]) -> None:
    """Notify each of `payloads`: a gate's id (32 hex characters), or ALL."""
    if payloads and connection.vendor == "postgresql":
        sql.rows(
            "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) payload",
            [CHANNEL, list(payloads)],
        )
