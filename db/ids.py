"""Identifiers: UUIDv7 for new things, derived UUIDs for things that a key names.

Writers derive equal ids from equal keys without coordination. A derived id keeps the first six
bytes of its parent, so that the rows of a session are adjacent in the index.
"""

import hashlib
import os
import threading
import time
from uuid import UUID

_lock = threading.Lock()
_last_ms = 0
_counter = 0


def new_uuid7() -> UUID:
    """Return a UUIDv7 (RFC 9562), increasing within this process."""
    global _last_ms, _counter
    with _lock:
        now_ms = time.time_ns() // 1_000_000
        if now_ms > _last_ms:
            _last_ms, _counter = now_ms, int.from_bytes(os.urandom(2), "big") & 0x7FF
        else:
            _counter += 1
            if _counter > 0xFFF:
                _last_ms, _counter = _last_ms + 1, 0
        milliseconds, sequence = _last_ms, _counter
    tail = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    return UUID(int=(milliseconds << 80) | (0x7 << 76) | (sequence << 64) | (0x2 << 62) | tail)


def derive_uuid(parent: UUID, *names: str) -> UUID:
    """Return the UUIDv8 of `names` under `parent`; equal names always give equal ids.

    The names are joined with NUL, which no identifier may contain. An id is no secret.
    """
    digest = hashlib.blake2b(
        "\0".join(names).encode(), key=parent.int.to_bytes(16, "big"), digest_size=16
    ).digest()
    number = int.from_bytes(digest, "big")
    if (parent.int >> 76) & 0xF == 8:  # the parent is derived too
        number = (parent.int & _FIRST_SIX_BYTES) | (number & ~_FIRST_SIX_BYTES)
    return UUID(int=(number & ~_VERSION_AND_VARIANT) | (0x8 << 76) | (0x2 << 62))


_FIRST_SIX_BYTES = ((1 << 48) - 1) << 80
_VERSION_AND_VARIANT = (0xF << 76) | (0x3 << 62)
