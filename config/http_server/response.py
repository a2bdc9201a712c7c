"""The application's response, prepared in its thread for the loop to send."""

import os
import time
from collections.abc import Callable, Iterable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, BinaryIO, Final, TypeAlias

import orjson

from config.http_server.body_limits import AGENTS_PREFIXES
from config.http_server.request import Request
from config.http_server.spool import FileContent, OutgoingContent

Headers: TypeAlias = list[tuple[str, str]]
_NO_CONTENT: Final = frozenset({204, 304})


class FileWrapper:
    """`wsgi.file_wrapper`: the loop sends the file itself, if the system has it open."""

    def __init__(self, file: BinaryIO, block_size: int = 65_536) -> None:
        self.file, self.block_size = file, block_size
        self.close: Callable[[], None] = getattr(file, "close", lambda: None)

    def __iter__(self) -> "FileWrapper":
        return self

    def __next__(self) -> bytes:
        if data := self.file.read(self.block_size):
            return data
        raise StopIteration

    def open_again(self, length: int) -> FileContent | None:
        """Return the next `length` bytes under a new descriptor; None when it is no file."""
        try:
            offset, descriptor = self.file.tell(), self.file.fileno()
        except (AttributeError, OSError, ValueError):
            return None
        return FileContent(os.dup(descriptor), offset, length)


class Response:
    """Status and headers of the application, and the bytes before its content."""

    def __init__(self, request: Request) -> None:
        self.status, self.headers = "", Headers()
        self.keep_alive = request.keep_alive
        self._head_only = request.method == "HEAD"
        self._old = request.version == "1.0"
        self.chunked = False

    def start(
        self, status: str, headers: Headers, _exc_info: object = None
    ) -> Callable[[bytes], object]:
        """The `start_response` of WSGI."""
        self.status, self.headers = status, headers

        def write(_data: bytes) -> None:
            raise NotImplementedError("return the content instead of calling write()")

        return write

    @property
    def has_content(self) -> bool:
        """Return whether bytes follow the head."""
        return not self._head_only and int(self.status[:3]) not in _NO_CONTENT

    @property
    def length(self) -> int | None:
        """Return the application's Content-Length."""
        return next(
            (int(value) for name, value in self.headers if name.lower() == "content-length"), None
        )

    def drop_length(self) -> None:
        """Remove the application's Content-Length."""
        self.headers = [
            (name, value) for name, value in self.headers if name.lower() != "content-length"
        ]

    def make_head(self, size: int | None) -> bytes:
        """Return the head. Content of unknown `size` is sent in chunks."""
        empty = int(self.status[:3]) in _NO_CONTENT
        if empty:
            self.drop_length()
        lines = [f"HTTP/1.1 {self.status}"]
        counted = self.length is not None
        lines += [f"{name}: {value}" for name, value in self.headers]
        if empty:
            pass
        elif not counted and size is not None:
            lines.append(f"Content-Length: {size}")
        elif not counted and self._old:
            self.keep_alive = False  # the end of the connection is the end of the content
        elif not counted:
            lines.append("Transfer-Encoding: chunked")
            self.chunked = True
        lines.append(f"Date: {_format_date(int(time.time()))}")
        if self._old or not self.keep_alive:
            lines.append(f"Connection: {'keep-alive' if self.keep_alive else 'close'}")
        head = "\r\n".join([*lines, "", ""])
        if {head.count("\r"), head.count("\n")} != {len(lines) + 1}:
            raise ValueError("a header of the response contains a line break")
        return head.encode("latin-1")

    def frame(self, data: bytes) -> bytes:
        """Return `data` as it is sent."""
        return b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data


def make_refusal(
    path: str, status: int, code: str, detail: str, headers: Headers | None = None
) -> bytes:
    """Return a complete response of the server's own, which ends the connection."""
    phrase = HTTPStatus(status).phrase
    if path.startswith(AGENTS_PREFIXES):
        kind = "application/problem+json"
        problem = {
            "type": "about:blank",
            "title": phrase,
            "status": status,
            "code": code,
            "detail": detail,
        }
        content = orjson.dumps(problem)
    else:
        kind, content = "text/plain; charset=utf-8", f"{detail}\n".encode()
    lines = [
        f"HTTP/1.1 {status} {phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(content)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        *(f"{name}: {value}" for name, value in headers or ()),
        f"Date: {_format_date(int(time.time()))}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


_date: tuple[int, str] = (0, "")


def _format_date(second: int) -> str:
    global _date
    cached_second, text = _date
    if cached_second != second:
        text = formatdate(second, usegmt=True)
        _date = (second, text)
    return text


Content: TypeAlias = OutgoingContent | FileContent
Application: TypeAlias = Callable[[dict[str, Any], Any], Iterable[bytes]]
