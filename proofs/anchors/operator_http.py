"""HTTP to addresses that the operator wrote into GATEBOOK_ANCHORS.

These may be inside the operator's network, so they need no entry in GATEBOOK_WEBHOOK_HOSTS. Only
this machine is reached without TLS.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from notifications import outbound_http
from notifications.outbound_http import DeliveryFailed, HttpAnswer, WebhookTarget
from proofs.anchors.published_head import AnchorFailed


def post_to_operator_url(
    url: str, body: bytes, headers: Mapping[str, str], *, most_bytes: int = 0
) -> HttpAnswer:
    """POST to `url` and return the answer. Raises AnchorFailed where nobody answers."""
    place = parse_operator_url(url)
    try:
        address = outbound_http.resolve_host(place.host, place.port)[0]
        return outbound_http.post_to_address(place, address, body, headers, most_bytes=most_bytes)
    except DeliveryFailed as error:
        raise AnchorFailed(f"{error} Check its address and server; it is tried again.") from error


def parse_operator_url(url: str) -> WebhookTarget:
    """Return the parts of `url`. Raises AnchorFailed."""
    is_plain = (
        url.isascii() and url.isprintable() and not any(sign in url for sign in ' \\"<>^`{|}')
    )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, is_plain = "", None, False
    if not is_plain or not host or parts.fragment or "@" in parts.netloc or len(url) > 300:
        raise AnchorFailed("This is no URL. Write one as https://example.org/heads")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_this_machine(host)):
        raise AnchorFailed(f"{host} is reached without TLS. Write a URL that begins with https://")
    is_secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookTarget(is_secure, host, port or (443 if is_secure else 80), path)


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
