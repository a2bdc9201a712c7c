"""Request bodies: framing, encoding and size. `parser.py` parses their content."""

import zlib

from django.http import HttpRequest, UnreadablePostError

from api.problems import Problem

_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


def check_content_type(request: HttpRequest, allowed: frozenset[str]) -> str:
    """Return the media type in lower case. Problem 415 unless it is one of `allowed`."""
    media_type = (request.content_type or "").strip().lower()
    if media_type not in allowed:
        supported = " or ".join(sorted(allowed))
        fault = (
            f"Content-Type {media_type[:100]!r} is not supported"
            if media_type
            else "Content-Type is missing"
        )
        raise Problem(415, "unsupported_media_type", f"{fault}. Send {supported}.")
    return media_type


def read_body(request: HttpRequest, *, limit: int, allow_empty: bool = False) -> bytes:
    """Return the whole body, decompressed, as UTF-8 bytes of at most `limit`.

    Problems: those of `read_binary_body` · 415 `unsupported_charset` · 422 `invalid_utf8`, and
    `body_empty` unless `allow_empty`.
    """
    raw = read_binary_body(request, limit=limit, allow_empty=allow_empty)
    if not raw:
        if allow_empty:
            return b""
        raise Problem(422, "body_empty", "The body is empty. Send a JSON document.")
    check_charset(raw)
    check_utf8(raw)
    return raw


def read_binary_body(request: HttpRequest, *, limit: int, allow_empty: bool = False) -> bytes:
    """Return the whole body, decompressed, as at most `limit` bytes of any kind.

    Problems: 400 `content_length_invalid`, `body_incomplete`, `body_unreadable` · 411
    `length_required` · 413 `body_too_large` (compressed or not) · 415 `unsupported_encoding`,
    `unsupported_charset` · 422 `gzip_invalid`.
    """
    encoding = request.META.get("HTTP_CONTENT_ENCODING", "").strip().lower() or "identity"
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise Problem(
            415,
            "unsupported_encoding",
            "Content-Encoding is not supported. Send the body uncompressed or with gzip.",
            headers={"Accept-Encoding": "gzip, identity"},
        )
    charset = request.content_params.get("charset") if request.content_params else None
    if charset is not None and charset.strip("\"' ").lower() not in ("utf-8", "utf8"):
        raise Problem(415, "unsupported_charset", "The charset is not supported. Send UTF-8.")
    raw = _read_framed(request, limit=limit, allow_empty=allow_empty)
    return _decompress(raw, limit) if encoding != "identity" and raw else raw


def check_charset(raw: bytes) -> None:
    """Raise Problem 415 for a byte order mark, UTF-16 or UTF-32."""
    # JSON text begins with two ASCII characters unless it is one character long, so a NUL among the
    # first four bytes means a wider encoding.
    if raw.startswith(_BYTE_ORDER_MARKS) or b"\x00" in raw[:4]:
        raise Problem(
            415,
            "unsupported_charset",
            "The body is not plain UTF-8. Send UTF-8 without a byte order mark.",
        )


def check_utf8(raw: bytes) -> None:
    """Raise Problem 422 `invalid_utf8` that names the first invalid byte."""
    if raw.isascii():
        return
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise Problem(
            422,
            "invalid_utf8",
            f"The body is not valid UTF-8 at byte {error.start}. Encode it as UTF-8.",
        ) from None


def _read_framed(request: HttpRequest, *, limit: int, allow_empty: bool) -> bytes:
    # Only a body with a known length can be checked for completeness. Gatebook's web server counts
    # chunked bodies itself. Behind another server, the end of a chunked stream can be a broken
    # connection.
    chunked = bool(request.META.get("HTTP_TRANSFER_ENCODING"))
    length_text = request.META.get("CONTENT_LENGTH") or ""
    if length_text and not chunked:
        try:
            return _read_counted(request, str(length_text), limit)
        # UnreadablePostError is the documented name; it is an OSError today.
        except (OSError, UnreadablePostError):
            detail = "The connection broke while the body was read. Send the request again."
            raise Problem(400, "body_unreadable", detail) from None
    if allow_empty and not chunked:
        return b""  # no Content-Length, no Transfer-Encoding: no body (RFC 9112, section 6.3)
    raise Problem(
        411,
        "length_required",
        "Content-Length is missing. Send it; chunked bodies are not accepted.",
    )


def _read_counted(request: HttpRequest, length_text: str, limit: int) -> bytes:
    if not (length_text.isascii() and length_text.isdigit() and len(length_text) <= 18):
        raise Problem(
            400, "content_length_invalid", "Content-Length is invalid. Send a decimal number."
        )
    length = int(length_text)
    if length > limit:
        raise _body_too_large(limit)
    parts: list[bytes] = []
    remaining = length
    while remaining:
        part = request.read(remaining)
        if not part:
            raise Problem(
                400,
                "body_incomplete",
                f"The body ended {remaining} bytes before its Content-Length. Send the request"
                " again.",
            )
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)


def _decompress(packed: bytes, limit: int) -> bytes:
    # Exactly one gzip member and nothing after it, so that no unread bytes are accepted.
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        raw = unpacker.decompress(packed, limit + 1)
    except zlib.error:
        raise Problem(
            422, "gzip_invalid", "The body is not valid gzip. Compress it again."
        ) from None
    if len(raw) > limit:
        raise _body_too_large(limit)
    if not unpacker.eof:
        raise Problem(422, "gzip_invalid", "The gzip body is truncated. Send it again.")
    if unpacker.unused_data:
        raise Problem(
            422,
            "gzip_invalid",
            "The gzip body has trailing bytes. Send exactly one gzip member.",
        )
    return raw


def _body_too_large(limit: int) -> Problem:
    return Problem(
        413,
        "body_too_large",
        f"The body is larger than {limit} bytes (uncompressed). Split it or use artifacts.",
    )
