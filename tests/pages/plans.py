"""How the database goes about what it is asked: the plan of each statement, its parameters bound as
they were."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection


@contextmanager
def explained() -> Iterator[dict[str, str]]:
    """Note every query asked within; afterwards the dictionary holds each of them with its plan."""
    asked: list[tuple[str, Any]] = []
    plans: dict[str, str] = {}

    def note(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        if sql.lstrip("(").startswith("SELECT"):
            asked.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield plans
    how = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        for sql, params in asked:
            cursor.execute(f"{how} {sql}", params)
            plans[sql] = "\n".join(str(row[-1]) for row in cursor.fetchall())
