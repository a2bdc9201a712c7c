"""The server's clock, the only one that rules may use."""

import time
from typing import Final


def now_us() -> int:
    """Microseconds since the epoch, UTC."""
    return time.time_ns() // 1_000


# The database's own clock in SQL, microseconds since the epoch: one moment for a whole statement, and never later than
# the moment at which it decides. Leases go by it, whatever the clocks of the processes that ask say. It holds no %.
SQL: Final = {
    "postgresql": "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint",
    "sqlite": "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)",
}
