"""One HTTP request with the standard library alone: loads in a few milliseconds, for hooks.

The time limit covers the whole exchange. Redirects are not followed, because a token must not go
to another host, and no proxy of the environment is used.
"""

import json
import socket
import time

MAX_RESPONSE_BYTES = 8 * 1024 * 1024
_CHUNK = 65536


class RequestFailed(Exception):
    """The request got no HTTP response. `sent` is true if the server may have received it."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


def split_url(url: str) -> tuple[bool, str, int, str]:
    """Return whether TLS is used, the host, the port and the path prefix. Raises ValueError."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("http", "https"):
        raise ValueError(f"The address {url} is not valid. It must begin with http:// or https://.")
    authority, slash, path = rest.partition("/")
    if "@" in authority or not authority or any(ord(character) < 33 for character in rest):
        raise ValueError(
            f"The address {url} is not valid. Write https://host or https://host:port."
        )
    host, _, port = authority.rpartition(":")
    if not host or authority.endswith("]"):
        host, port = authority, "443" if scheme == "https" else "80"
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"The address {url} is not valid: {port} is not a port.")
    return scheme == "https", host.strip("[]"), int(port), (slash + path).rstrip("/")


def send_request(
    method: str,
    url: str,
    path: str,
    *,
    token: str = "",
    body: bytes = b"",
    timeout_s: float,
    headers: tuple[tuple[str, str], ...] = (),
) -> tuple[int, bytes]:
    """Send one request and return the status and the body of its response.

    Raises RequestFailed, and ValueError for an address or a token that cannot be sent.
    """
    until = time.monotonic() + timeout_s
    tls, host, port, prefix = split_url(url)
    if not token.isascii() or any(character <= " " for character in token):
        raise ValueError("The token contains a character that no token has. Copy it again.")
    name = f"[{host}]" if ":" in host else host
    lines = [
        f"{method} {prefix}{path} HTTP/1.1",
        f"Host: {name}:{port}",
        "Accept: application/json",
        "Connection: close",
    ]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if body or method != "GET":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{header}: {value}" for header, value in headers]
    head = "\r\n".join([*lines, "", ""]).encode()
    sent = False
    connection = None
    try:
        connection = socket.create_connection((host, port), timeout=_seconds_left(until))
        if tls:
            connection = _wrap_tls(connection, host)
        connection.settimeout(_seconds_left(until))
        sent = True
        try:
            connection.sendall(head + body if len(body) < _CHUNK else head)
            if len(body) >= _CHUNK:
                connection.sendall(body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # a server that refuses a large body answers before it has read it
        return _read_response(connection, until)
    except (OSError, ValueError) as error:
        reason = "timed out" if isinstance(error, TimeoutError) else str(error)
        raise RequestFailed(reason or type(error).__name__, sent=sent) from error
    finally:
        if connection is not None:
            connection.close()


def _seconds_left(until: float) -> float:
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


def _wrap_tls(connection: socket.socket, host: str) -> socket.socket:
    import ssl  # takes longer to load than the rest of this module

    return ssl.create_default_context().wrap_socket(connection, server_hostname=host)


def _read_response(connection: socket.socket, until: float) -> tuple[int, bytes]:
    received = bytearray()

    def receive() -> bool:
        """Read more; return False at the end."""
        connection.settimeout(_seconds_left(until))
        data = connection.recv(_CHUNK)
        received.extend(data)
        if len(received) > MAX_RESPONSE_BYTES:
            raise ValueError("the response is too long")
        return bool(data)

    status, headers = 100, {}
    while 100 <= status < 200:
        while (end := received.find(b"\r\n\r\n")) < 0:
            if not receive():
                raise ValueError("the connection was closed before a response")
        first, *others = bytes(received[:end]).decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise ValueError("the response is not HTTP")
        status = int(rest[:3])
        headers = {
            key.strip().lower(): value.strip()
            for key, _, value in (line.partition(":") for line in others)
        }
        del received[: end + 4]
    if status in (204, 304):
        return status, b""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return status, _read_chunks(received, receive)
    if "content-length" in headers:
        length = int(headers["content-length"])
        while len(received) < length:
            if not receive():
                raise ValueError("the response was cut off")
        return status, bytes(received[:length])
    while receive():
        pass
    return status, bytes(received)


def _read_chunks(received: bytearray, receive) -> bytes:  # type: ignore[no-untyped-def]
    body = bytearray()

    def take_line() -> bytes:
        while (end := received.find(b"\r\n")) < 0:
            if not receive():
                raise ValueError("the response was cut off")
        line = bytes(received[:end])
        del received[: end + 2]
        return line

    while size := int(take_line().partition(b";")[0], 16):
        while len(received) < size + 2:
            if not receive():
                raise ValueError("the response was cut off")
        body += received[:size]
        del received[: size + 2]
    return bytes(body)


def parse_object(body: bytes) -> dict[str, object]:
    """Return a body that is a JSON object; empty for anything else."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
