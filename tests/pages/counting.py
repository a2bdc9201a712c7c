"""Statements that run long, on the connection of the pages."""

from django.db import connection

ENDLESS = "WITH RECURSIVE endless(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM endless) SELECT count(*) FROM endless"
COUNTED = 1_000_000
LONG = ENDLESS.replace("FROM endless)", f"FROM endless WHERE n < {COUNTED})")


def ask(statement: str) -> int:
    """Run a statement on the connection of the pages; return the number it counts."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return int(cursor.fetchone()[0])
