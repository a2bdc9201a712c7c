"""Anchor: syslog messages (RFC 5424) over UDP, TCP (RFC 6587, octet counting) or a unix socket.

A message is one line. Its structured data holds the whole signed note in base64:
`[gatebook@32473 head="17" note="Z2F0ZWJvb2svL…"]`. Syslog confirms nothing, so a receipt says only
where the message was sent.
"""

import base64
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final
from urllib.parse import SplitResult, urlsplit

from proofs.anchors.published_head import (
    AnchorFailed,
    AnchorTarget,
    LastReceipt,
    PublishedHead,
    TreeReader,
    write_receipt,
)

TIMEOUT_S: Final = 5.0
PRIORITY: Final = 13 * 8 + 5  # facility log audit, severity notice
# The number that RFC 5612 gives for use without a registration of one's own.
_DATA_ID: Final = "gatebook@32473"
_PORTS: Final = {"udp": 514, "tcp": 601}


def publish_to_syslog(
    target: AnchorTarget,
    heads: Sequence[PublishedHead],
    _last: LastReceipt | None,
    _tree: TreeReader,
) -> Iterator[str]:
    """Send a message for each of `heads`; yield a receipt for each. Raises AnchorFailed."""
    parts = urlsplit(target.address)
    try:
        with _connect(parts) as connection:
            messages = [format_message(head, datetime.now(UTC)) for head in heads]
            for message in messages:
                _send(connection, message)
            _wait_for_end(connection)
    except OSError as error:
        raise AnchorFailed(
            f"{target.address} takes no message: {error.strerror or error}. Start its receiver or "
            "check its address; it is tried again."
        ) from error
    for message in messages:
        yield write_receipt(sent_to=target.address, bytes=len(message))


def format_message(head: PublishedHead, at: datetime) -> bytes:
    """Return the syslog message of a tree head."""
    moment = at.strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"
    host = socket.gethostname().encode("ascii", "replace").decode()[:255] or "-"
    note = base64.b64encode(head.note.encode()).decode()
    root = base64.b64encode(head.root).decode()
    return (
        f"<{PRIORITY}>1 {moment} {host} gatebook {os.getpid()} tree-head "
        f'[{_DATA_ID} head="{head.number}" note="{note}"] '
        f"tree head {head.number} of {head.origin}: {head.size} entries, root {root}"
    ).encode()


def find_syslog_faults(target: AnchorTarget) -> list[str]:
    """Return why the address is no receiver of syslog."""
    parts = urlsplit(target.address)
    if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
        return []
    try:
        is_network = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_network = False
    if is_network and not parts.path.strip("/") and "@" not in parts.netloc:
        return []
    return [
        f"{target.address} is no receiver of syslog. Write syslog:udp://HOST:514, "
        "syslog:tcp://HOST:601 or syslog:unix:///dev/log"
    ]


def _connect(parts: SplitResult) -> socket.socket:
    if parts.scheme == "unix":
        return _connect_to_path(parts.path)
    kind = socket.SOCK_DGRAM if parts.scheme == "udp" else socket.SOCK_STREAM
    port = parts.port or _PORTS[parts.scheme]
    family, _, _, _, address = socket.getaddrinfo(parts.hostname, port, type=kind)[0]
    return _open_socket(family, kind, address)


def _connect_to_path(path: str) -> socket.socket:
    """Connect to a unix socket: most receivers read datagrams, some a stream."""
    try:
        return _open_socket(socket.AF_UNIX, socket.SOCK_DGRAM, path)
    except OSError:
        return _open_socket(socket.AF_UNIX, socket.SOCK_STREAM, path)


def _open_socket(family: int, kind: int, address: object) -> socket.socket:
    connection = socket.socket(family, kind)
    connection.settimeout(TIMEOUT_S)
    try:
        connection.connect(address)  # type: ignore[arg-type]  # its form depends on the family
    except OSError:
        connection.close()
        raise
    return connection


def _send(connection: socket.socket, message: bytes) -> None:
    if connection.type == socket.SOCK_DGRAM:
        connection.send(message)
    else:
        connection.sendall(b"%d %b" % (len(message), message))


def _wait_for_end(connection: socket.socket) -> None:
    """Wait until the receiver has closed a stream, which shows a connection that broke."""
    if connection.type == socket.SOCK_DGRAM:
        return
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(1.0)
    with suppress(TimeoutError):
        connection.recv(1)
