"""Spans as both encodings of OTLP give them, and the limits of one request."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

REQUEST_BYTES: Final = 16 * 1024 * 1024  # uncompressed
MAX_SPANS: Final = 10_000  # of one request
MAX_ATTRIBUTES: Final = 1_000  # of one span or resource
MAX_VALUES: Final = 10_000  # inside the attributes of one span or resource
MAX_ATTRIBUTE_DEPTH: Final = 16  # levels of lists and maps in one attribute
MAX_EXCEPTIONS: Final = 4  # events named `exception` that a span keeps

STATUS_OK: Final = 1
STATUS_ERROR: Final = 2

Attributes = Mapping[str, Any]  # values are JSON: text, numbers, lists and maps


class RequestUnreadable(Exception):
    """The body is not an ExportTraceServiceRequest. The text says why."""


class TooManySpans(Exception):
    """The request has more spans or values than one request may have."""


class SpanFault(Exception):
    """One span is unusable. The text says why; the other spans count."""


class SpanSource(NamedTuple):
    """What a group of spans shares: resource and instrumentation scope."""

    resource: Attributes
    scope: str
    scope_version: str


class Span(NamedTuple):
    """One span. Ids are lower-case hex; times are microseconds since the epoch, 0 if not sent."""

    trace: str
    id: str
    parent: str
    name: str
    kind: int
    start_us: int
    end_us: int
    status: int
    status_message: str
    attributes: Attributes
    exceptions: tuple[Attributes, ...]
    source: SpanSource


def check_span_ids(trace: str, span: str) -> None:
    """Raise SpanFault unless both ids are hex of the right length and not only zeros."""
    for name, value, length in (("traceId", trace, 32), ("spanId", span, 16)):
        if len(value) != length or not _HEX.issuperset(value):
            raise SpanFault(f"`{name}` is not {length} hex digits. Send ids as OTLP says.")
        if not value.strip("0"):
            raise SpanFault(f"`{name}` is zero. Send ids as OTLP says.")


_HEX: Final = frozenset("0123456789abcdef")
