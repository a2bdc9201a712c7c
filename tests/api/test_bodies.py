"""Framing, encoding and size limits of bodies, and the answers to refused ones."""

import gzip
import io
import json
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIRequest
from django.test import RequestFactory

from api.problems import Problem, build_problem_response
from api.strictjson.parser import check_content_type, read_body
from tests.api.fuzz_strict import HOSTILE, LIMIT


def _request(
    body: bytes = b"{}", content_type: str = "application/json", **environ: Any
) -> WSGIRequest:
    return RequestFactory().generic("POST", "/", body, content_type, **environ)


def _stream(body: bytes, **environ: Any) -> WSGIRequest:
    base = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/",
        "wsgi.input": io.BytesIO(body),
        "CONTENT_TYPE": "application/json",
    }
    return WSGIRequest({**base, **environ})


def _body_refusal(request: WSGIRequest, limit: int = LIMIT) -> tuple[int, str]:
    with pytest.raises(Problem) as caught:
        read_body(request, limit=limit)
    return caught.value.status, caught.value.code


def test_bodies_are_accepted_plain_or_compressed() -> None:
    assert read_body(_request(b'{"a":"\xc3\xa9"}'), limit=LIMIT) == b'{"a":"\xc3\xa9"}'
    packed = gzip.compress(b'{"a":1}')
    for name in ("gzip", "GZIP", "x-gzip"):
        assert read_body(_request(packed, HTTP_CONTENT_ENCODING=name), limit=LIMIT) == b'{"a":1}'
    assert read_body(_request(b"{}", HTTP_CONTENT_ENCODING="identity"), limit=LIMIT) == b"{}"
    assert read_body(_request(b"{}", "application/json; charset=UTF-8"), limit=LIMIT) == b"{}"


def test_packed_bodies_are_watched_while_they_are_unpacked() -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    assert _body_refusal(_request(bomb, HTTP_CONTENT_ENCODING="gzip")) == (413, "body_too_large")
    packed = gzip.compress(b'{"a":1}')
    damaged = [
        packed[:-1],
        packed[:12],
        packed[:-8] + b"\x00" * 8,
        b"{}",
        packed + b"x",
        packed + packed,
    ]
    for raw in damaged:
        assert _body_refusal(_request(raw, HTTP_CONTENT_ENCODING="gzip")) == (422, "gzip_invalid")


@pytest.mark.parametrize(
    "encoding", ["br", "deflate", "zstd", "gzip, gzip", "gzip, identity", "compress", "*"]
)
def test_other_encodings_are_415(encoding: str) -> None:
    assert _body_refusal(_request(HTTP_CONTENT_ENCODING=encoding)) == (415, "unsupported_encoding")


@pytest.mark.parametrize("charset", ["utf-16", "iso-8859-1", "ascii", "nonsense", '"utf-32"'])
def test_other_charsets_are_415(charset: str) -> None:
    assert _body_refusal(_request(b"{}", f"application/json; charset={charset}")) == (
        415,
        "unsupported_charset",
    )


@pytest.mark.parametrize(
    "name", ["utf-16", "utf-16 without mark", "utf-16 big endian", "utf-32", "byte order mark"]
)
def test_wide_text_and_marks_are_415(name: str) -> None:
    assert _body_refusal(_request(HOSTILE[name])) == (415, "unsupported_charset")


def test_bodies_that_are_not_text_empty_or_over_the_limit_are_refused() -> None:
    assert _body_refusal(_request(b'{"a":"\xff"}')) == (422, "invalid_utf8")
    assert _body_refusal(_request(b"12345"), limit=4) == (413, "body_too_large")
    assert read_body(_request(b"1234"), limit=4) == b"1234"
    assert _body_refusal(_stream(b"", CONTENT_LENGTH="0")) == (422, "body_empty")
    assert read_body(_stream(b"", CONTENT_LENGTH="0"), limit=4, allow_empty=True) == b""


def test_a_chunked_or_uncounted_body_is_not_read() -> None:
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked"}
    for ended in ({}, {"wsgi.input_terminated": True}):
        assert _body_refusal(_stream(b'{"a":1}', **chunked, **ended)) == (411, "length_required")
        assert _body_refusal(_stream(b'{"a":1}', CONTENT_LENGTH="2", **chunked, **ended)) == (
            411,
            "length_required",
        )
        assert _body_refusal(_stream(b'{"a":1}', **ended)) == (411, "length_required")
    assert read_body(_stream(b""), limit=LIMIT, allow_empty=True) == b""
    with pytest.raises(Problem, match="411"):
        read_body(_stream(b"", **chunked), limit=LIMIT, allow_empty=True)


def test_the_declared_length_must_be_the_length_sent() -> None:
    assert _body_refusal(_stream(b'{"a"', CONTENT_LENGTH="7")) == (400, "body_incomplete")
    for length in ("seven", "-1", "+7", "7.0", "7" * 30, "٧"):
        assert _body_refusal(_stream(b"{}", CONTENT_LENGTH=length)) == (
            400,
            "content_length_invalid",
        )


def test_a_broken_connection_is_400() -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise ConnectionResetError

    broken = _stream(b"", **{"CONTENT_LENGTH": "7", "wsgi.input": Broken()})
    assert _body_refusal(broken) == (400, "body_unreadable")


def test_content_types() -> None:
    allowed = frozenset({"application/json", "application/x-ndjson"})
    assert (
        check_content_type(_request(b"{}", "Application/JSON; charset=utf-8"), allowed)
        == "application/json"
    )
    for other in ("text/plain", "", "application/json+x", "multipart/form-data; boundary=x"):
        with pytest.raises(Problem) as caught:
            check_content_type(_request(b"{}", other), allowed)
        assert (caught.value.status, caught.value.code) == (415, "unsupported_media_type")


def test_a_problem_is_answered_as_problem_json() -> None:
    answer = build_problem_response(
        Problem(
            413,
            "body_too_large",
            "Too \ud800 large.",
            pointer="/\ud800",
            headers={"Retry-After": "1"},
        )
    )
    assert answer.status_code == 413
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["Cache-Control"] == "no-store"
    assert answer["Retry-After"] == "1"
    body = json.loads(answer.content)
    assert set(body) == {"type", "title", "status", "code", "detail", "pointer"}
    assert (body["type"], body["status"], body["code"]) == ("about:blank", 413, "body_too_large")
