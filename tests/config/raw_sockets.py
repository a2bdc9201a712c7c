"""Requests written byte by byte that an HTTP client would not send."""

import select
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

PATIENCE_S = 60


@dataclass
class Answer:
    """A response: its status (0 for none), its head in lower case, and its content."""

    status: int
    head: str
    content: bytes


class Wire:
    """One connection. `source` is the address of the client."""

    def __init__(self, url: str, source: str = "127.0.0.1") -> None:
        address = urlsplit(url)
        self.host = address.netloc
        self.socket = socket.create_connection(
            (address.hostname or "", address.port or 80),
            timeout=PATIENCE_S,
            source_address=(source, 0),
        )
        self._rest = b""

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, line: str, *headers: str, body: bytes = b"", end: bool = True) -> "Wire":
        """Send a request line, a Host, `headers` and `body`; without `end` the head lacks its last
        line."""
        head = "\r\n".join([f"{line} HTTP/1.1", f"Host: {self.host}", *headers])
        self.socket.sendall(head.encode("latin-1") + (b"\r\n\r\n" if end else b"\r\n") + body)
        return self

    def hang_up(self) -> "Wire":
        """Shut down the sending side; answers can still be read."""
        self.socket.shutdown(socket.SHUT_WR)
        return self

    def read(self) -> Answer:
        """Read one response, whose content is counted or ends with the connection."""
        data = self._rest
        while b"\r\n\r\n" not in data:
            if not (part := self._receive()):
                return Answer(0, "", data)
            data += part
        top, _, content = data.partition(b"\r\n\r\n")
        head = top.decode("latin-1").lower()
        status = int(top.split(b" ")[1])
        if status == 100 or status in (204, 304):
            self._rest = content
            return Answer(status, head, b"")
        length = next(
            (int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")),
            None,
        )
        while length is None or len(content) < length:
            if not (part := self._receive()):
                break
            content += part
        self._rest = content[length:] if length is not None else b""
        return Answer(status, head, content[:length])

    def is_open(self) -> bool:
        """Return whether the server has neither answered nor hung up."""
        return not select.select([self.socket], [], [], 0)[0]

    def _receive(self) -> bytes:
        try:
            return self.socket.recv(65_536)
        except ConnectionError:
            return b""


def chunks(data: bytes, size: int = 7) -> bytes:
    """Return `data` in chunks, without the last, empty chunk."""
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def close_all(wires: Iterable[Wire]) -> None:
    """Close all connections."""
    for wire in wires:
        wire.socket.close()
