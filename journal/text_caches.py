"""Caches of what was read from agents' texts, kept for a minute.

Pages read the same claims and paths again and again. Their bodies may be erased: the process that
erases one clears its caches at once, every other at the end of a request within a minute.
"""

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, ParamSpec, TypeVar, cast

from django.core.signals import request_finished
from django.dispatch import receiver

P = ParamSpec("P")
T = TypeVar("T")
KEPT_S: Final = 60
_clear_functions: list[Callable[[], None]] = []
_clear_at = {"s": 0.0}  # on the monotonic clock


def cache_texts(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Cache at most `most` results of a pure function of texts."""

    def decorate(read: Callable[P, T]) -> Callable[P, T]:
        cached = lru_cache(maxsize=most)(read)
        _clear_functions.append(cached.cache_clear)
        return cast(Callable[P, T], cached)

    return decorate


def clear_text_caches() -> None:
    """Clear all of them; requests that run only read their texts again."""
    _clear_at["s"] = time.monotonic() + KEPT_S
    for clear in _clear_functions:
        clear()


@receiver(request_finished, dispatch_uid="journal.text_caches")
def _clear_old_texts(**_signal: Any) -> None:
    if time.monotonic() >= _clear_at["s"]:
        clear_text_caches()
