"""The one way out of the house by HTTP: a POST to a host that the operator has listed, and to no inner address.

The name is resolved here, every address it has must be a public one, and the connection goes to the address that was
looked at: a name that changes its mind in between gains nothing. Redirects are not followed, proxies not asked.
"""

import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

TIMEOUT_S: Final = 5.0
# The special-purpose registries of IANA, reachable from everywhere or not: no webhook lives in any of them. The
# standard library knows some of these, and which depends on its version.
SPECIAL: Final = tuple(
    ipaddress.ip_network(one)
    for one in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        # Of IPv6 only 2000::/3 is public. It holds what carries an IPv4 address to somewhere else (6to4, Teredo).
        *("::/3", "4000::/2", "8000::/1"),
        *("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
    )
)
_ISATAP: Final = (0x00005EFE, 0x02005EFE)  # an IPv4 address follows, in the second half of any IPv6 address

Resolve = Callable[[str, int], list[str]]


class Refused(Exception):
    """The address may not be spoken to. The sentence is for whoever set it."""


class Failed(Exception):
    """It may, but did not take what was sent."""


@dataclass(frozen=True, slots=True)
class Place:
    """A URL that may be posted to, taken apart."""

    secure: bool
    host: str
    port: int
    path: str


def look_up(host: str, port: int) -> list[str]:
    """Every address of `host`, as text. Raises Failed when it has none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Failed(f"{host} cannot be resolved.") from error
    return [str(address[4][0]) for address in found]


def read(url: str) -> Place:
    """Take `url` apart, and apart only in the one way that everybody agrees on. Raises Refused."""
    if not url.isascii() or not url.isprintable() or any(sign in url for sign in ' \\"<>^`{|}'):
        raise Refused("Write the address in plain ASCII, without blanks and backslashes.")
    if len(url) > 300 or "#" in url or "@" in url:
        raise Refused("An address here has no user, no fragment, and at most 300 characters.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise Refused("This is not an address.") from None
    secure = parts.scheme == "https"
    if not host or (not secure and not (parts.scheme == "http" and settings.GATEBOOK_WEBHOOK_LOOPBACK)):
        raise Refused("Give an address that begins with https://.")
    if not _listed(host, port):
        raise Refused(f"{host} is not among the hosts that the operator allows (GATEBOOK_WEBHOOK_HOSTS).")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Place(secure, host, port if port is not None else (443 if secure else 80), path)


def _listed(host: str, port: int | None) -> bool:
    """Hosts are compared as they are written; one with a port of its own is listed with it."""
    shown = f"[{host}]" if ":" in host else host
    return (shown if port is None else f"{shown}:{port}") in settings.GATEBOOK_WEBHOOK_HOSTS


def address_of(place: Place, resolve: Resolve = look_up) -> str:
    """The address to connect to. Raises Refused when any address of the host is not a public one."""
    found = resolve(place.host, place.port)
    for address in found:
        if not _public(address) and not (_loopback(address) and settings.GATEBOOK_WEBHOOK_LOOPBACK):
            raise Refused(f"{place.host} leads to {address}, which is no public address.")
    if not found:
        raise Failed(f"{place.host} cannot be resolved.")
    return found[0]


def _public(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif found.scope_id or int(found) >> 32 & 0xFFFFFFFF in _ISATAP:
            return False
    return not any(found in network for network in SPECIAL)


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def post(url: str, body: bytes, headers: Mapping[str, str], resolve: Resolve = look_up) -> None:
    """POST `body` to `url`; anything but a 2xx raises Failed, an address that may not be spoken to Refused.

    Once the name is looked up it takes at most TIMEOUT_S, also where somebody answers a byte at a time.
    """
    place = read(url)
    connection = _Connection(place, address_of(place, resolve))
    watch = threading.Timer(TIMEOUT_S, connection.break_off)
    watch.daemon = True
    watch.start()
    try:
        sent = {"User-Agent": "Gatebook", "Connection": "close", "Content-Type": "application/json", **headers}
        connection.request("POST", place.path, body=body, headers=sent)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        if connection.is_broken_off:
            raise Failed(f"{place.host} took longer than {TIMEOUT_S:g} s.") from error
        raise Failed(f"{place.host}: {type(error).__name__}: {error}"[:200]) from error
    finally:
        watch.cancel()
        connection.close()
    if not 200 <= status < 300:
        raise Failed(f"{place.host} answered {status}.")


class _Connection(http.client.HTTPConnection):
    """Speaks to one address that was looked at, under the name it was looked up by."""

    def __init__(self, place: Place, address: str) -> None:
        super().__init__(place.host, place.port, timeout=TIMEOUT_S)
        self.address, self.secure = address, place.secure
        self.is_broken_off = False
        self._line: socket.socket | None = None

    def connect(self) -> None:
        """To the address, not to whatever the name means by now."""
        self.sock = socket.create_connection((self.address, self.port), TIMEOUT_S)
        self._line = self.sock.dup()  # the other one is given to TLS, and is not there while hands are shaken
        if self.is_broken_off:
            raise TimeoutError
        if self.secure:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)

    def break_off(self) -> None:
        """Let whoever reads or writes fail at once; called by another thread."""
        self.is_broken_off = True
        with suppress(OSError):
            if self._line is not None:
                self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Hang up."""
        super().close()
        if self._line is not None:
            self._line.close()
