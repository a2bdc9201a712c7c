"""Limits per client: connections, time, bytes.

config/variables.py lists the variables.
"""

import ipaddress
import resource
import threading
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from django.conf import settings

# File descriptors for the database, logs and views, besides connections and spooled bodies.
FILES_FOR_OTHERS: Final = 512
IPV6_NETWORK: Final = 64  # an IPv6 client owns a whole network


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one worker process."""

    connections: int
    connections_per_address: int
    proxies: frozenset[str]
    timeout_s: float  # for a whole head, and for each `window_bytes` of a body or response
    bytes_per_s: int  # the least that a body or response must move
    spool_bytes: int
    # Longer than proxies keep a connection, so that they close it first.
    idle_s: float = 75.0
    head_bytes: int = 65_536
    stranger_bytes: int = 8_192  # of a body, before its sender is known
    memory_bytes: int = 131_072  # of a body; the rest goes to a file
    pipelined: int = 64
    # A refused client's input is discarded for this time, so that it can read the refusal.
    linger_s: float = 2.0
    linger_bytes: int = 4 * 1024 * 1024

    @property
    def window_bytes(self) -> int:
        """Return the bytes that a body or response must move within `timeout_s`."""
        return int(self.bytes_per_s * self.timeout_s)


def read_limits() -> Limits:
    """Return the limits of the settings, lowered to the system's limit of open files."""
    return Limits(
        connections=min(settings.GATEBOOK_CONNECTIONS, _raise_file_limit()),
        connections_per_address=settings.GATEBOOK_CONNECTIONS_PER_ADDRESS,
        proxies=settings.GATEBOOK_PROXIES,
        timeout_s=settings.GATEBOOK_CLIENT_TIMEOUT_S,
        bytes_per_s=settings.GATEBOOK_CLIENT_BYTES_PER_S,
        spool_bytes=settings.GATEBOOK_SPOOL_BYTES,
    )


def _raise_file_limit() -> int:
    """Raise the soft limit of open files; return how many connections fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # some systems report a hard limit that they do not grant
            pass
    if soft == resource.RLIM_INFINITY:
        return 1_000_000
    # Each connection may have a spooled file as well as its socket.
    return max((soft - FILES_FOR_OTHERS) // 2, soft // 4)


class AddressPlaces:
    """Counts the places that each address uses.

    A proxy uses none itself. Its clients do, by the address that it forwards.
    """

    def __init__(self, most: int, proxies: frozenset[str]) -> None:
        self._most = most
        self._proxies = proxies
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def is_proxy(self, address: str) -> bool:
        """Return whether requests from `address` may name the address of their client."""
        return address in self._proxies

    def take(self, address: str) -> str | None:
        """Take a place for `address`; return the name to give it back by, or None if full.

        The name is empty where no place is counted.
        """
        name = _name_client(address)
        if not name:
            return ""
        with self._lock:
            if self._held[name] >= self._most:
                return None
            self._held[name] += 1
        return name

    def give_back(self, name: str) -> None:
        """Give a place back."""
        if name:
            with self._lock:
                self._held[name] -= 1
                if not self._held[name]:
                    del self._held[name]

    def find_client(self, forwarded: str) -> str:
        """Return the last address in X-Forwarded-For that is not our proxy, or ""."""
        for part in reversed(forwarded.split(",")):
            address = part.strip()
            if address.startswith("["):
                address = address[1:].partition("]")[0]
            elif address.count(":") == 1:
                address = address.partition(":")[0]  # some proxies add the port
            if address and address not in self._proxies:
                return address
        return ""


@lru_cache(maxsize=4096)
def _name_client(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, IPV6_NETWORK), strict=False))
    return str(parsed)
