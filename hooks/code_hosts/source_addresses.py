"""Addresses of webhook sources: which there are, and how large a delivery each takes.

The web server asks before it reads a body, because a code host sends no token.
"""

import re
from typing import Final, NamedTuple
from uuid import UUID

from hooks.code_hosts import sources

MAX_DELIVERY_BYTES: Final = 8 * 1024 * 1024
# At the common address of a host anybody can send: a source's own address is not public.
MAX_COMMON_BYTES: Final = 1024 * 1024
_ADDRESS: Final = re.compile(r"/api/v1/hooks/(github|gitlab)(?:/([0-9a-fA-F-]{36}))?", re.ASCII)


class SourceAddress(NamedTuple):
    """The host of an address, and the source that it names; the common address names none."""

    host: str
    source: UUID | None


def parse_source_address(path: str) -> SourceAddress | None:
    """Return the address that `path` is, or None."""
    match = _ADDRESS.fullmatch(path)
    if match is None:
        return None
    try:
        return SourceAddress(match[1], UUID(match[2]) if match[2] else None)
    except ValueError:
        return None


def find_most_delivery_bytes(address: SourceAddress) -> int:
    """Return the largest delivery that an address takes."""
    return MAX_COMMON_BYTES if address.source is None else MAX_DELIVERY_BYTES


def has_source(address: SourceAddress) -> bool:
    """True if an enabled source has this address."""
    rows = sources.find_sources(address.host, address.source)
    return any(source.enabled for source in rows)
