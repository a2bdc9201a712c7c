"""Notify all processes when the transaction commits (PostgreSQL NOTIFY).

Does nothing on SQLite. Use it sparingly: PostgreSQL serializes commits that notify.
"""

from collections.abc import Sequence
from typing import Final

from django.db import connection

from db import raw_sql

GATE_CHANNEL: Final = "gatebook_gates"
ALL_LISTENERS: Final = "*"  # concerns everyone who waits


def notify_listeners(payloads: Sequence[str]) -> None:
    """Notify each of `payloads`: a gate's id (32 hex characters), or ALL."""
    if payloads and connection.vendor == "postgresql":
        raw_sql.fetch_rows(
            "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) payload",
            [GATE_CHANNEL, list(payloads)],
        )
