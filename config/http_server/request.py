"""One HTTP request as it arrives, and its WSGI environment."""

import io
import sys
from functools import lru_cache
from typing import Any, BinaryIO, Final, cast
from urllib.parse import unquote_to_bytes

from config.http_server.spool import SpooledBytes

BASE_ENVIRON: Final = {
    "SCRIPT_NAME": "",
    "wsgi.version": (1, 0),
    "wsgi.url_scheme": "http",
    "wsgi.errors": sys.stderr,
    "wsgi.input_terminated": True,
    "wsgi.multithread": True,
    "wsgi.multiprocess": False,
    "wsgi.run_once": False,
}
# Headers that the server handles itself, or that are meant only for it.
_OWN: Final = frozenset(
    {b"content-length", b"transfer-encoding", b"trailer", b"te", b"keep-alive", b"upgrade"}
)


class BodyIncompleteError(OSError):
    """The body did not arrive completely, so the application gets none of it."""


class IncompleteBody(io.RawIOBase):
    """Stream of an incomplete body: every read fails."""

    def readable(self) -> bool:
        return True

    def readinto(self, _buffer: object) -> int:
        raise BodyIncompleteError("the body did not arrive whole")


class Request:
    """The received part of a request. `complete` once all of it has arrived."""

    __slots__ = (
        "body",
        "chunked",
        "complete",
        "cut",
        "expects",
        "headers",
        "keep_alive",
        "known",
        "length",
        "method",
        "most",
        "path",
        "peer",
        "place",
        "query",
        "size",
        "started",
        "url",
        "version",
    )

    def __init__(self, body: SpooledBytes, peer: str) -> None:
        self.method = self.path = self.query = ""
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.version = "1.1"
        self.keep_alive = False
        self.length: int | None = None  # as announced
        self.chunked = False
        self.expects = False  # a "100 Continue" before it sends its body
        self.size = 0  # of the head
        self.body = body
        self.most = 0
        self.complete = False
        self.cut = ""  # the code of why the rest of the body is not received
        self.known = False  # its sender is known, or need not be
        self.started = False  # a thread has it now and will free its body
        self.place: str | None = None
        self.peer = peer

    def find(self, name: bytes) -> str:
        """Return the value of a header, joined for equal names; empty if not sent."""
        return ", ".join(
            value.decode("latin-1") for sent, value in self.headers if sent.lower() == name
        )

    def read_url(self) -> None:
        """Parse path and query from the target, which may also be an absolute address."""
        target = self.url.partition(b"#")[0]
        if not target.startswith(b"/") and b"://" in target:
            rest = target.partition(b"://")[2]
            cut = min(
                (at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest)
            )
            target = rest[cut:] if rest[cut : cut + 1] == b"/" else b"/" + rest[cut:]
        path, _, query = target.partition(b"?")
        self.path = (unquote_to_bytes(path) if b"%" in path else path).decode("latin-1")
        self.query = query.decode("latin-1")

    def make_environ(self, server: tuple[str, str]) -> dict[str, Any]:
        """Return the WSGI environment. Its body has a length, also for chunked requests."""
        environ: dict[str, Any] = {
            **BASE_ENVIRON,
            "REQUEST_METHOD": self.method,
            "PATH_INFO": self.path,
            "QUERY_STRING": self.query,
            "SERVER_PROTOCOL": f"HTTP/{self.version}",
            "SERVER_NAME": server[0],
            "SERVER_PORT": server[1],
            "REMOTE_ADDR": self.peer,
        }
        for name, value in self.headers:
            variable = _name_variable(name)
            if variable is None:
                continue
            text = value.decode("latin-1")
            if variable in environ:
                text = f"{environ[variable]}{'; ' if variable == 'HTTP_COOKIE' else ', '}{text}"
            environ[variable] = text
        size = self.body.size
        if self.length is not None or self.chunked or self.cut:
            environ["CONTENT_LENGTH"] = str(max(size, self.length or 0) if self.cut else size)
        environ["wsgi.input"] = self._open_body()
        return environ

    def _open_body(self) -> BinaryIO:
        return (
            cast(BinaryIO, IncompleteBody())
            if self.cut or not self.complete
            else self.body.stream()
        )


@lru_cache(maxsize=1024)
def _name_variable(name: bytes) -> str | None:
    """Return the variable of a header; None for one that the application does not get.

    A name with an underscore could set another header's variable, for example one of a proxy.
    """
    lower = name.lower()
    if b"_" in lower or lower in _OWN:
        return None
    if lower == b"content-type":
        return "CONTENT_TYPE"
    return "HTTP_" + lower.decode("latin-1").upper().replace("-", "_")
