"""Tells SQLite's query planner what a grown book looks like, after every migration.

Without statistics it holds one index of a project for as narrow as the next and walks the whole project for the three
failed effects in it. The figures (rows, then rows per value of one, two … columns; see SQLite on sqlite_stat1) are
those of a project with a million effects. They need only be in the right order, and hold for small books too.
PostgreSQL keeps its own.
"""

from typing import Any, Final

from django.db import connections

EFFECTS: Final = {
    "effect_by_opening": "1000000 1000000 1",
    "effect_by_session": "1000000 100 1",
    "effect_by_tool": "1000000 1000000 50000 1",
    "effect_by_state": "100000 100000 20000 1",
    "effect_failed_by_tool": "20000 20000 1000 1",
    "effect_open_intent": "30000 20 1",
    "effect_by_reference": "300000 300000 2",
    "effect_by_repository": "500000 500000 25000 1",
    "effect_by_ref_class": "100000 100000 50000 1",
    "effect_by_bad_outcome": "50000 50000 25000 1",
    "effect_by_compensated": "1000 1",
    "effect_violations": "1000 1000 1",
    "effect_judged_to_need_leave": "50000 50000 1",
    "effect_said_no": "1000 1000 2",
    # Made by SQLite for the primary key and for (session, effect_key).
    "sqlite_autoindex_ledger_effect_1": "1000000 1",
    "sqlite_autoindex_ledger_effect_2": "1000000 100 1",
}


def inform_after_migrate(using: str = "default", **_signal: Any) -> None:
    """Write the figures where the database is SQLite and the ledger is there; connections opened later go by them."""
    connection = connections[using]
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'ledger_effect'")
        present = {row[0] for row in cursor.fetchall()}
        if not present:
            return
        cursor.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'")
        if cursor.fetchone() is None:  # ANALYZE alone can make the table; looking at a few rows is enough for that
            cursor.execute("PRAGMA analysis_limit = 100")
            cursor.execute("ANALYZE ledger_effect")
        cursor.execute("DELETE FROM sqlite_stat1 WHERE tbl = 'ledger_effect'")
        rows = [("ledger_effect", index, figures) for index, figures in EFFECTS.items() if index in present]
        cursor.executemany("INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (%s, %s, %s)", rows)
        cursor.execute("ANALYZE sqlite_schema")  # this connection goes by them too
