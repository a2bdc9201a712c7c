"""Reading a request's body: how it is framed, encoded and how long it may be. What it says is strict.py's matter."""

import zlib

from django.http import HttpRequest, UnreadablePostError

from ingest.problems import Problem

_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


def check_content_type(request: HttpRequest, allowed: frozenset[str]) -> str:
    """The request's media type in lower case, when it is one of `allowed`; otherwise Problem 415."""
    media_type = (request.content_type or "").strip().lower()
    if media_type not in allowed:
        wanted = " or ".join(sorted(allowed))
        said = f"not {media_type[:100]!r}" if media_type else "and say so in Content-Type"
        raise Problem(415, "unsupported_media_type", f"Send {wanted}, {said}.")
    return media_type


def read_body(request: HttpRequest, *, limit: int, allow_empty: bool = False) -> bytes:
    """The whole body, unpacked, as UTF-8 bytes of at most `limit`.

    Problems: 400 `content_length_invalid`, `body_incomplete`, `body_unreadable` · 411 `length_required` · 413
    `body_too_large` (packed or unpacked) · 415 `unsupported_encoding`, `unsupported_charset` · 422 `gzip_invalid`,
    `invalid_utf8`, and `body_empty` unless `allow_empty`.
    """
    encoding = request.META.get("HTTP_CONTENT_ENCODING", "").strip().lower() or "identity"
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise Problem(
            415,
            "unsupported_encoding",
            "Send the body as it is or packed with gzip; no other Content-Encoding is read.",
            headers={"Accept-Encoding": "gzip, identity"},
        )
    charset = request.content_params.get("charset") if request.content_params else None
    if charset is not None and charset.strip("\"' ").lower() not in ("utf-8", "utf8"):
        raise Problem(415, "unsupported_charset", "Send UTF-8; no other charset is read.")
    raw = _read_framed(request, limit=limit, allow_empty=allow_empty)
    if encoding != "identity" and raw:
        raw = _unpack(raw, limit)
    if not raw:
        if allow_empty:
            return b""
        raise Problem(422, "body_empty", "The body is empty; send a JSON document.")
    check_charset(raw)
    check_utf8(raw)
    return raw


def check_charset(raw: bytes) -> None:
    """Problem 415 for a byte order mark, or for bytes that begin as UTF-16 or UTF-32 do."""
    # JSON text begins with two ASCII characters unless it is one character long, so a NUL among its first four bytes
    # means a wider encoding.
    if raw.startswith(_BYTE_ORDER_MARKS) or b"\x00" in raw[:4]:
        raise Problem(
            415, "unsupported_charset", "Send UTF-8 without a byte order mark; UTF-16 and UTF-32 are not read."
        )


def check_utf8(raw: bytes) -> None:
    """Problem 422 `invalid_utf8` naming the first bad byte."""
    if raw.isascii():
        return
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise Problem(
            422, "invalid_utf8", f"The body is not UTF-8 at byte {error.start}; encode it as UTF-8."
        ) from None


def _read_framed(request: HttpRequest, *, limit: int, allow_empty: bool) -> bytes:
    # Only a counted body shows that it arrived whole. The web server counts those that it received in chunks; of any
    # other server nothing says that the end of a stream of chunks is not a break.
    chunked = bool(request.META.get("HTTP_TRANSFER_ENCODING"))
    length_text = request.META.get("CONTENT_LENGTH") or ""
    if length_text and not chunked:
        try:
            return _read_counted(request, str(length_text), limit)
        except (OSError, UnreadablePostError):  # the latter is an OSError today; its name is the documented one
            detail = "The connection broke while the body was read; send it again."
            raise Problem(400, "body_unreadable", detail) from None
    if allow_empty and not chunked:
        return b""  # without Content-Length and Transfer-Encoding a request has no body (RFC 9112, section 6.3)
    raise Problem(411, "length_required", "Send a Content-Length; a chunked body cannot be read here.")


def _read_counted(request: HttpRequest, length_text: str, limit: int) -> bytes:
    if not (length_text.isascii() and length_text.isdigit() and len(length_text) <= 18):
        raise Problem(400, "content_length_invalid", "Content-Length must be a plain decimal number.")
    length = int(length_text)
    if length > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    missing = length
    while missing:
        part = request.read(missing)
        if not part:
            raise Problem(
                400, "body_incomplete", f"The body ended {missing} bytes before its Content-Length; send it again."
            )
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _unpack(packed: bytes, limit: int) -> bytes:
    # One member only, and nothing behind it: bytes that nobody reads must not ride along.
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        raw = unpacker.decompress(packed, limit + 1)
    except zlib.error:
        raise Problem(422, "gzip_invalid", "The body is not readable gzip; pack it again.") from None
    if len(raw) > limit:
        raise _too_large(limit)
    if not unpacker.eof:
        raise Problem(422, "gzip_invalid", "The gzip body is cut short; send it whole.")
    if unpacker.unused_data:
        raise Problem(
            422, "gzip_invalid", "There are bytes behind the gzip body; send one gzip member and nothing else."
        )
    return raw


def _too_large(limit: int) -> Problem:
    return Problem(
        413,
        "body_too_large",
        f"The body is larger than the limit of {limit} bytes (unpacked); split it or use artifacts.",
    )
