"""Caches of what was read from agents' texts: they live as long as a request.

A page reads the same claim or path several times. Its body may be erased afterwards, so the process
keeps nothing of it when the request has ended.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar, cast

from django.core.signals import request_finished
from django.dispatch import receiver

P = ParamSpec("P")
T = TypeVar("T")
_clearing: list[Callable[[], None]] = []


def cache_texts(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Cache at most `most` results of a pure function until any request of the process ends."""

    def decorate(read: Callable[P, T]) -> Callable[P, T]:
        cached = lru_cache(maxsize=most)(read)
        _clearing.append(cached.cache_clear)
        return cast(Callable[P, T], cached)

    return decorate


@receiver(request_finished, dispatch_uid="journal.text_caches")
def clear_text_caches(**_signal: Any) -> None:
    """Clear all of them; requests that still run only read their texts again."""
    for clear in _clearing:
        clear()
