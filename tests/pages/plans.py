"""Collect the query plan of each statement, with its parameters bound."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection


@contextmanager
def explained() -> Iterator[dict[str, str]]:
    """Record each query; afterwards the dictionary maps each query to its plan."""
    queries: list[tuple[str, Any]] = []
    plans: dict[str, str] = {}

    def note(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        if sql.lstrip("(").startswith(("SELECT", "DELETE")):
            queries.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield plans
    command = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        for sql, params in queries:
            cursor.execute(f"{command} {sql}", params)
            plans[sql] = "\n".join(str(row[-1]) for row in cursor.fetchall())


def assert_no_scans(plans: dict[str, str]) -> None:
    """Check that no query reads a whole table that grows; PostgreSQL may read a small one.

    SQLite uses a partial index only if its condition is in the query.
    """
    assert plans
    for text, plan in plans.items():
        scans = re.search("SCAN (journal|ledger|investigation)_", plan)
        assert connection.vendor != "sqlite" or not scans, (text, plan)
