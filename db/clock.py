"""The server's clock, the only one that rules may use."""

import time
from typing import Final


def now_us() -> int:
    """Return microseconds since the epoch, UTC."""
    return time.time_ns() // 1_000


# The database's clock in SQL, microseconds since the epoch. It is constant within a statement and
# never later than its decision. Leases use it, so that clocks of processes do not matter. The text
# contains no %.
NOW_SQL: Final = {
    "postgresql": "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint",
    "sqlite": "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)",
}
