"""SSRF-safe outbound HTTP: POST to allowed hosts, never to internal addresses.

This module resolves the name, requires every address to be public, and connects to the checked
address, so DNS rebinding gains nothing. Redirects are not followed; proxies are not used.
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
# IANA special-purpose address registries, globally reachable or not: webhooks use none of them.
# The standard library knows a subset that depends on its version.
SPECIAL_NETWORKS: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        # Only 2000::/3 of IPv6 is public. Parts of it carry an IPv4 address (6to4, Teredo).
        "::/3",
        "4000::/2",
        "8000::/1",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "2620:4f:8000::/48",
        "3fff::/20",
    )
)
# In the second half of an IPv6 address, an IPv4 address follows.
_ISATAP: Final = (0x00005EFE, 0x02005EFE)

AddressResolver = Callable[[str, int], list[str]]


class AddressRefused(Exception):
    """The address is not allowed. The message is for the user who entered it."""


class DeliveryFailed(Exception):
    """The address is allowed, but the delivery failed."""


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """The parts of an allowed URL."""

    secure: bool
    host: str
    port: int
    path: str


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a server answered: status, content type, and the beginning of the content."""

    status: int
    content_type: str
    content: bytes


def resolve_host(host: str, port: int) -> list[str]:
    """Resolve all addresses of `host`, as text. Raises DeliveryFailed if there are none."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DeliveryFailed(f"{host} cannot be resolved.") from error
    return [str(address[4][0]) for address in addresses]


def parse_webhook_url(url: str) -> WebhookTarget:
    """Parse `url` strictly, so that all parsers agree on its parts. Raises Refused."""
    if not url.isascii() or not url.isprintable() or any(sign in url for sign in ' \\"<>^`{|}'):
        raise AddressRefused("Write the URL in plain ASCII, without blanks and backslashes.")
    if len(url) > 300 or "#" in url or "@" in url:
        raise AddressRefused("Use a URL without user or fragment, at most 300 characters long.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise AddressRefused(
            "This is not a URL. Enter one such as https://example.org/hook."
        ) from None
    secure = parts.scheme == "https"
    if not host or (
        not secure and not (parts.scheme == "http" and settings.GATEBOOK_WEBHOOK_LOOPBACK)
    ):
        raise AddressRefused("Enter a URL that begins with https://.")
    if not _is_allowed_host(host, port):
        raise AddressRefused(
            f"{host} is not an allowed host. Ask the operator to add it to GATEBOOK_WEBHOOK_HOSTS."
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookTarget(secure, host, port if port is not None else (443 if secure else 80), path)


def _is_allowed_host(host: str, port: int | None) -> bool:
    """Compare a host as written; a host with a port must be listed with it."""
    shown = f"[{host}]" if ":" in host else host
    return (shown if port is None else f"{shown}:{port}") in settings.GATEBOOK_WEBHOOK_HOSTS


def public_address(place: WebhookTarget, resolve: AddressResolver = resolve_host) -> str:
    """Return the address to connect to. Raises Refused if any address is not public."""
    addresses = resolve(place.host, place.port)
    for address in addresses:
        if not _public(address) and not (
            _is_loopback(address) and settings.GATEBOOK_WEBHOOK_LOOPBACK
        ):
            raise AddressRefused(f"{place.host} resolves to {address}, which is not public.")
    if not addresses:
        raise DeliveryFailed(f"{place.host} cannot be resolved.")
    return addresses[0]


def _public(address: str) -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif ip.scope_id or int(ip) >> 32 & 0xFFFFFFFF in _ISATAP:
            return False
    return not any(ip in network for network in SPECIAL_NETWORKS)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def post_webhook(
    url: str, body: bytes, headers: Mapping[str, str], resolve: AddressResolver = resolve_host
) -> None:
    """POST `body` to `url`. Raises Refused for a forbidden address, DeliveryFailed unless 2xx.

    After the name is resolved, takes at most TIMEOUT_S, even against a slow sender.
    """
    place = parse_webhook_url(url)
    answer = post_to_address(place, public_address(place, resolve), body, headers)
    if not 200 <= answer.status < 300:
        raise DeliveryFailed(f"{place.host} answered {answer.status}.")


def post_to_address(
    place: WebhookTarget,
    address: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    most_bytes: int = 0,
) -> HttpAnswer:
    """POST `body` to `address` under the name of `place`; return status and `most_bytes` at most.

    Raises DeliveryFailed for a broken connection. Takes at most TIMEOUT_S. The caller has checked
    that the address is allowed.
    """
    connection = _Connection(place, address)
    watch = threading.Timer(TIMEOUT_S, connection.break_off)
    watch.daemon = True
    watch.start()
    try:
        sent = {
            "User-Agent": "Gatebook",
            "Connection": "close",
            "Content-Type": "application/json",
            **headers,
        }
        connection.request("POST", place.path, body=body, headers=sent)
        response = connection.getresponse()
        content = response.read(most_bytes) if most_bytes else b""
        return HttpAnswer(response.status, response.getheader("Content-Type") or "", content)
    except (OSError, http.client.HTTPException) as error:
        if connection.is_broken_off:
            raise DeliveryFailed(f"{place.host} took longer than {TIMEOUT_S:g} s.") from error
        raise DeliveryFailed(f"{place.host}: {type(error).__name__}: {error}"[:200]) from error
    finally:
        watch.cancel()
        connection.close()


class _Connection(http.client.HTTPConnection):
    """HTTP connection to one checked address, under the resolved host name."""

    def __init__(self, place: WebhookTarget, address: str) -> None:
        super().__init__(place.host, place.port, timeout=TIMEOUT_S)
        self.address, self.secure = address, place.secure
        self.is_broken_off = False
        self._socket_copy: socket.socket | None = None

    def connect(self) -> None:
        """Connect to the checked address without resolving the name again."""
        self.sock = socket.create_connection((self.address, self.port), TIMEOUT_S)
        # TLS takes over the other descriptor, which is missing during the handshake.
        self._socket_copy = self.sock.dup()
        if self.is_broken_off:
            raise TimeoutError
        if self.secure:
            self.sock = ssl.create_default_context().wrap_socket(
                self.sock, server_hostname=self.host
            )

    def break_off(self) -> None:
        """Make a blocked read or write fail immediately; called from another thread."""
        self.is_broken_off = True
        with suppress(OSError):
            if self._socket_copy is not None:
                self._socket_copy.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close both descriptors."""
        super().close()
        if self._socket_copy is not None:
            self._socket_copy.close()
