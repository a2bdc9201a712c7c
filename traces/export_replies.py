"""Answers of OTLP: ExportTraceServiceResponse, and google.rpc.Status for errors."""

from collections.abc import Sequence
from typing import Final

import orjson
from django.http import HttpResponse

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
MAX_MESSAGE: Final = 1_000  # characters
# HTTP status -> google.rpc.Code.
_CODES: Final = {400: 3, 401: 16, 403: 7, 404: 5, 413: 8, 415: 3, 429: 8, 503: 14}
_INTERNAL: Final = 13


def build_success(media_type: str, faults: Sequence[str]) -> HttpResponse:
    """Build the answer to a request that was taken; `faults` has one text per rejected span."""
    message = _summarize_faults(faults)
    if media_type == JSON:
        partial = {"rejectedSpans": str(len(faults)), "errorMessage": message}
        return _build_reply(200, JSON, orjson.dumps({"partialSuccess": partial} if faults else {}))
    packed = b""
    if faults:
        text = message.encode()
        inner = b"\x08" + _pack_varint(len(faults)) + b"\x12" + _pack_varint(len(text)) + text
        packed = b"\x0a" + _pack_varint(len(inner)) + inner
    return _build_reply(200, PROTOBUF, packed)


def build_failure(status: int, media_type: str, message: str) -> HttpResponse:
    """Build the answer to a request of which nothing counts: a google.rpc.Status."""
    code, message = _CODES.get(status, _INTERNAL), message[:MAX_MESSAGE]
    if media_type != PROTOBUF:
        return _build_reply(status, JSON, orjson.dumps({"code": code, "message": message}))
    text = message.encode(errors="replace")
    packed = b"\x08" + _pack_varint(code) + b"\x12" + _pack_varint(len(text)) + text
    return _build_reply(status, PROTOBUF, packed)


def _summarize_faults(faults: Sequence[str]) -> str:
    """Return the different faults, each with how often it occurs, as one text."""
    counts: dict[str, int] = {}
    for fault in faults:
        counts[fault] = counts.get(fault, 0) + 1
    texts = [f"{fault} ({count} spans)" if count > 1 else fault for fault, count in counts.items()]
    return " ".join(texts[:5]).encode(errors="replace").decode()[:MAX_MESSAGE]


def _build_reply(status: int, media_type: str, content: bytes) -> HttpResponse:
    response = HttpResponse(content, status=status, content_type=media_type)
    response["Content-Length"] = str(len(content))
    response["Cache-Control"] = "no-store"
    return response


def _pack_varint(number: int) -> bytes:
    packed = bytearray()
    while number > 127:
        packed.append(number & 127 | 128)
        number >>= 7
    packed.append(number)
    return bytes(packed)
