"""Coroutines in tests: in a thread of their own, because a browser leaves its event loop in ours."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run_coroutine(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end and return its result."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
