"""A WSGI application with a fault at each path, for tests of the web server."""

import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.config.settings")

import django

django.setup()

from config.http_server import body_limits  # noqa: E402 - needs Django set up


def _fall(path: str, authorization: str, cookie: str) -> bool:
    raise RuntimeError(f"the look-up for {path} failed")


body_limits.is_known = _fall


class Unclosable(list[bytes]):
    """Content whose `close` fails after the last byte."""

    def close(self) -> None:
        raise RuntimeError("not closed")


def _break_off() -> Iterator[bytes]:
    yield b"first"
    raise RuntimeError("no second part")


def application(environ: dict[str, Any], start: Any) -> Any:
    """Answer depending on the path."""
    answers: dict[str, tuple[str, list[tuple[str, str]], Any]] = {
        "/more": (
            "200 OK",
            [("Content-Length", "5")],
            iter([b"first", b"HTTP/1.1 200 OK\r\n\r\n"]),
        ),
        "/close": ("200 OK", [], Unclosable([b"whole"])),
        "/sign": ("200 OK", [("X-Sign", "\u20ac")], [b"whole"]),
        "/break": ("200 OK", [("X-Line", "a\r\nX-Other: b")], [b"whole"]),
        "/half": ("200 OK", [], _break_off()),
        "/204": ("204 No Content", [("Content-Length", "5")], []),
        "/304": ("304 Not Modified", [("Content-Length", "0")], []),
    }
    status, headers, content = answers.get(
        environ["PATH_INFO"], ("200 OK", [], [environ["wsgi.input"].read()])
    )
    start(status, headers)
    return content
