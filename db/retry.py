"""Retry a transaction on serialization failures, deadlocks and lost races."""

from collections.abc import Callable
from typing import Final, TypeVar

from django.db import DatabaseError, transaction

MAX_TRIES: Final = 5
# serialization_failure, deadlock_detected, unique_violation. ON CONFLICT (id) waits for the writer
# of the same id only: if a second unique index of the table is checked first, the loser of a race
# gets a violation of that one. Run again, it sees the row.
_RETRY_SQLSTATES: Final = ("40001", "40P01", "23505")

T = TypeVar("T")


def is_retry_requested(error: BaseException) -> bool:
    """True if the transaction may succeed when PostgreSQL runs it again; nothing was stored."""
    return (
        isinstance(error, DatabaseError)
        and getattr(error.__cause__, "sqlstate", None) in _RETRY_SQLSTATES
    )


def run_with_retry(work: Callable[[], T], *overtaken: type[Exception]) -> T:
    """Run `work` in its own durable transaction, with retries, and return its result.

    It is retried, at most MAX_TRIES times in all, when it raises one of `overtaken` or the database
    requests it. So it must read again what it decides by. The last exception is raised.
    """
    for left in reversed(range(MAX_TRIES)):
        try:
            with transaction.atomic(durable=True):
                return work()
        except Exception as error:
            if not left or not (is_retry_requested(error) or isinstance(error, overtaken)):
                raise
    raise AssertionError("unreachable")
