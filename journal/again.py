"""Runs a transaction again when PostgreSQL asks for it, or when somebody else was quicker."""

from collections.abc import Callable
from typing import Final, TypeVar

from django.db import OperationalError, transaction

TRIES: Final = 5
_ASKED_BY: Final = ("40001", "40P01")  # serialization_failure, deadlock_detected

T = TypeVar("T")


def asked(error: BaseException) -> bool:
    """Whether `error` is PostgreSQL's wish to be sent the whole transaction again; nothing of it was kept."""
    return (
        isinstance(error, OperationalError)
        and getattr(error.__cause__, "sqlstate", None) in _ASKED_BY
    )


def durably(work: Callable[[], T], *overtaken: type[Exception]) -> T:
    """Run `work` in a durable transaction of its own and return what it returns.

    It runs again, TRIES times in all, when it raises one of `overtaken` or the database asks for it: so it must read
    anew what it decides by. What the last try raises is raised.
    """
    for left in reversed(range(TRIES)):
        try:
            with transaction.atomic(durable=True):
                return work()
        except Exception as error:
            if not left or not (asked(error) or isinstance(error, overtaken)):
                raise
    raise AssertionError("unreachable")
