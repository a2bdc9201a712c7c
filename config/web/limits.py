"""What one client may take: connections, time, bytes. Set by the environment; docs/operating.md lists the variables."""

import ipaddress
import resource
import threading
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from django.conf import settings

# Files of the database, of logs and of what views open come on top of connections and of their spooled bodies.
FILES_FOR_OTHERS: Final = 512
IPV6_NETWORK: Final = 64  # a client on IPv6 has a whole network of addresses


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one worker process."""

    connections: int
    connections_per_address: int
    proxies: frozenset[str]
    timeout_s: float  # to send a whole head; also the time in which each part of a body or response must move
    bytes_per_s: int  # the least that a body or response moves in that time
    spool_bytes: int
    idle_s: float = 75.0  # longer than proxies keep a connection, so that they close it and we do not
    head_bytes: int = 65_536
    stranger_bytes: int = 8_192  # of a body, before its sender is known
    memory_bytes: int = 131_072  # of a body; the rest goes to a file
    pipelined: int = 64
    linger_s: float = 2.0  # what a refused client still sends is thrown away, so that it can read the refusal
    linger_bytes: int = 4 * 1024 * 1024

    @property
    def window_bytes(self) -> int:
        """What a body or response must move within `timeout_s`."""
        return int(self.bytes_per_s * self.timeout_s)


def read_limits() -> Limits:
    """Return the limits that the settings ask for, as far as the system's limit of open files allows."""
    return Limits(
        connections=min(settings.GATEBOOK_CONNECTIONS, _raise_file_limit()),
        connections_per_address=settings.GATEBOOK_CONNECTIONS_PER_ADDRESS,
        proxies=settings.GATEBOOK_PROXIES,
        timeout_s=settings.GATEBOOK_CLIENT_TIMEOUT_S,
        bytes_per_s=settings.GATEBOOK_CLIENT_BYTES_PER_S,
        spool_bytes=settings.GATEBOOK_SPOOL_BYTES,
    )


def _raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one; return how many connections fit below it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # some systems report a hard limit that they do not grant
            pass
    if soft == resource.RLIM_INFINITY:
        return 1_000_000
    # Each connection may have a spooled file besides its socket.
    return max((soft - FILES_FOR_OTHERS) // 2, soft // 4)


class Addresses:
    """How many places each address holds. A proxy holds none itself: its clients do, by the address it forwards."""

    def __init__(self, most: int, proxies: frozenset[str]) -> None:
        self._most = most
        self._proxies = proxies
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def is_proxy(self, address: str) -> bool:
        """Return whether requests from `address` may name the address of their client."""
        return address in self._proxies

    def take(self, address: str) -> str | None:
        """Take a place for `address`. Return the name to give it back by, or None when the address has no place left.

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
        """Return the last address of an X-Forwarded-For header that is no proxy of ours; empty when there is none."""
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
