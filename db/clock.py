"""The server's clock, the only one that rules may use."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_simulated_us: ContextVar[int | None] = ContextVar("simulated_us", default=None)


def now_us() -> int:
    """Return microseconds since the epoch, UTC; the simulated time inside `simulate_clock`."""
    simulated = _simulated_us.get()
    return time.time_ns() // 1_000 if simulated is None else simulated


def is_simulated() -> bool:
    """Return True inside `simulate_clock`. The journal then records the real time of receipt."""
    return _simulated_us.get() is not None


def real_now_us() -> int:
    """Return the real time, also inside `simulate_clock`."""
    return time.time_ns() // 1_000


@contextmanager
def simulate_clock(at_us: int) -> Iterator[Callable[[int], object]]:
    """Let this thread live at `at_us`; the yielded function moves its time.

    Only the sample project is written so. The database's own clock, which leases use, stays real.
    """
    token = _simulated_us.set(at_us)
    try:
        yield _simulated_us.set
    finally:
        _simulated_us.reset(token)


# The database's clock in SQL, microseconds since the epoch. It is constant within a statement and
# never later than its decision. Leases use it, so that clocks of processes do not matter. The text
# contains no %.
NOW_SQL: Final = {
    "postgresql": "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint",
    "sqlite": "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)",
}
