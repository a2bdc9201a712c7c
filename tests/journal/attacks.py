"""Attacks on the journal by SQL, and checks that nothing changed."""

from typing import Any

from django.db import DatabaseError, connection, transaction

from db.triggers import APPEND_ONLY_TABLES
from journal import entries, erasures
from tests.journal.drafts import NOW_US, draft, new_project


def history() -> int:
    """Write two entries and erase the second; return the position of the first."""
    project = new_project()
    first, second = entries.append_entries(
        [draft("a", project=project), draft("b", project=project)], NOW_US
    )
    erasures.erase_body(project, second.position, reason="request 17", actor="p_1", now_us=NOW_US)
    # PostgreSQL refuses some statements, for its own reasons, while checks are pending
    connection.check_constraints()
    return first.position


def everything() -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of the journal's append-only tables."""
    rows = {}
    with connection.cursor() as cursor:
        for table in APPEND_ONLY_TABLES:
            cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
            rows[table] = [
                tuple(bytes(value) if isinstance(value, memoryview) else value for value in row)
                for row in cursor.fetchall()
            ]
    return rows


def attack(statement: str) -> str:
    """Run one statement on the application's connection; return the refusal, or ""."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    except DatabaseError as refused:
        return str(refused)
    return ""
