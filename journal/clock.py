"""The server's clock, the only one that rules may use."""

import time


def now_us() -> int:
    """Microseconds since the epoch, UTC."""
    return time.time_ns() // 1_000
