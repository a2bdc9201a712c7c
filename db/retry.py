"""Retry a transaction on serialization failures, deadlocks and lost races."""

from collections.abc import Callable
from typing import Final, TypeVar

from django.db import OperationalError, transaction

MAX_TRIES: Final = 5
_RETRY_SQLSTATES: Final = ("40001", "40P01")  # serialization_failure, deadlock_detected

T = TypeVar("T")


def is_retry_requested(error: BaseException) -> bool:
    """True if PostgreSQL asks for the whole transaction again; nothing was stored."""
    return (
        isinstance(error, OperationalError)
        and getattr(error.__cause__, "sqlstate", None) in _RETRY_SQLSTATES
    )


def run_with_retry(work: Callable[[], T], *overtaken: type[Exception]) -> T:
    """Run `work` in its own durable transaction, with retries, and return its result.

    It is retried, at most TRIES times in all, when it raises one of `overtaken` or the database
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
