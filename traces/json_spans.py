"""JSON decoder of OTLP requests: hex ids, integers as text, unknown fields ignored.

Spans stay undecoded until they are taken, so that one unusable span (a lone surrogate, a base64 id)
does not cost the others.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from traces.attribute_values import ValueBudget, to_json_number
from traces.spans import (
    MAX_ATTRIBUTE_DEPTH,
    MAX_EXCEPTIONS,
    MAX_SPANS,
    RequestUnreadable,
    Span,
    SpanFault,
    SpanSource,
    TooManySpans,
    check_span_ids,
)

# Each object and list that is decoded costs memory; a batch of 5,000 spans of 30 attributes has
# fewer.
MAX_BRACKETS: Final = 500_000
_STATUS_NAMES: Final = {"STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")


# Marks a span with a lone surrogate, which no text of ours can hold.
_BROKEN: Final = "gatebook.lone_surrogate"
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class _Array(msgspec.Struct):
    values: "list[_Value] | None" = None


class _Map(msgspec.Struct):
    values: "list[_KeyValue] | None" = None


class _Value(msgspec.Struct):
    string_value: str | None = msgspec.field(default=None, name="stringValue")
    bool_value: bool | None = msgspec.field(default=None, name="boolValue")
    int_value: int | str | None = msgspec.field(default=None, name="intValue")
    double_value: float | str | None = msgspec.field(default=None, name="doubleValue")
    array_value: _Array | None = msgspec.field(default=None, name="arrayValue")
    map_value: _Map | None = msgspec.field(default=None, name="kvlistValue")
    bytes_value: str | None = msgspec.field(default=None, name="bytesValue")


class _KeyValue(msgspec.Struct):
    key: str = ""
    value: _Value | None = None


class _Status(msgspec.Struct):
    code: int | str | None = 0
    message: str | None = ""


class _Event(msgspec.Struct):
    name: str | None = ""
    attributes: list[_KeyValue] | None = None


class _Span(msgspec.Struct):
    trace: str | None = msgspec.field(default="", name="traceId")
    span: str | None = msgspec.field(default="", name="spanId")
    parent: str | None = msgspec.field(default="", name="parentSpanId")
    name: str | None = ""
    kind: int | str | None = 0
    start: int | str | None = msgspec.field(default=0, name="startTimeUnixNano")
    end: int | str | None = msgspec.field(default=0, name="endTimeUnixNano")
    attributes: list[_KeyValue] | None = None
    events: list[_Event] | None = None
    status: _Status | None = None
    is_broken: bool = msgspec.field(default=False, name=_BROKEN)


class _Scope(msgspec.Struct):
    name: str | None = ""
    version: str | None = ""


class _ScopeSpans(msgspec.Struct):
    scope: _Scope | None = None
    spans: list[msgspec.Raw] | None = None


class _Resource(msgspec.Struct):
    attributes: list[_KeyValue] | None = None


class _ResourceSpans(msgspec.Struct):
    resource: _Resource | None = None
    scopes: list[_ScopeSpans] | None = msgspec.field(default=None, name="scopeSpans")


class _Request(msgspec.Struct):
    resources: list[_ResourceSpans] | None = msgspec.field(default=None, name="resourceSpans")


# Prepared at import: two threads that prepare a struct at once crashed the server.
_decode_request: Final = msgspec.json.Decoder(_Request).decode
_decode_span: Final = msgspec.json.Decoder(_Span).decode


def decode_json_spans(body: bytes) -> Iterator[Span | SpanFault]:
    """Yield the spans of an ExportTraceServiceRequest in JSON; a SpanFault for each unusable one.

    Raises RequestUnreadable where the body is no such request, TooManySpans beyond the limits.
    """
    if body.count(b"{") + body.count(b"[") > MAX_BRACKETS:
        raise TooManySpans
    request = _read_request(body)
    counted = 0
    for group in request.resources or ():
        resource = _read_resource(group.resource)
        for scope_spans in group.scopes or ():
            scope = scope_spans.scope or _Scope()
            source = SpanSource(resource, scope.name or "", scope.version or "")
            counted += len(scope_spans.spans or ())
            if counted > MAX_SPANS:
                raise TooManySpans
            for raw in scope_spans.spans or ():
                try:
                    yield _read_span(_decode_span(raw), source)
                except SpanFault as fault:
                    yield fault
                except (ValueError, RecursionError) as error:
                    yield SpanFault(f"The span is not valid. {error}.")


def _read_request(body: bytes) -> _Request:
    try:
        return _decode_request(body)
    except (ValueError, RecursionError) as error:
        if _SURROGATE.search(body):
            try:
                return _decode_request(_mark_broken_spans(body))
            except (ValueError, RecursionError, TypeError, AttributeError):
                pass
        raise RequestUnreadable(f"The body is not OTLP in JSON. {error}.") from None


def _mark_broken_spans(body: bytes) -> bytes:
    """Return a body in which a mark replaces each span with a lone surrogate.

    Senders that cut texts by UTF-16 units write lone surrogates, which msgspec reads nowhere.
    """
    document = json.loads(body)
    for group in document.get("resourceSpans") or ():
        for scope in group.get("scopeSpans") or ():
            spans = scope.get("spans") or ()
            scope["spans"] = [{_BROKEN: True} if _is_broken(span) else span for span in spans]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _is_broken(span: Any) -> bool:
    try:
        json.dumps(span, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _read_resource(resource: _Resource | None) -> dict[str, Any]:
    try:
        return _read_attributes(resource.attributes if resource else None, ValueBudget())
    except SpanFault as fault:
        raise RequestUnreadable(f"The attributes of a resource are unusable. {fault}") from None


def _read_span(sent: _Span, source: SpanSource) -> Span:
    if sent.is_broken:
        raise SpanFault("A text has a lone surrogate. Send valid Unicode.")
    trace, span = (sent.trace or "").lower(), (sent.span or "").lower()
    check_span_ids(trace, span)
    budget = ValueBudget()
    status = sent.status or _Status()
    code = status.code or 0
    exceptions = [event for event in sent.events or () if event.name == "exception"]
    return Span(
        trace,
        span,
        (sent.parent or "").lower(),
        sent.name or "",
        sent.kind if isinstance(sent.kind, int) else 0,
        _read_integer(sent.start) // 1_000,
        _read_integer(sent.end) // 1_000,
        code if isinstance(code, int) else _STATUS_NAMES.get(code, 0),
        status.message or "",
        _read_attributes(sent.attributes, budget),
        tuple(_read_attributes(event.attributes, budget) for event in exceptions[:MAX_EXCEPTIONS]),
        source,
    )


def _read_integer(value: int | str | None) -> int:
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value):
            raise SpanFault("A time or integer is not decimal digits. Send int64 as JSON text.")
        return int(value)
    return value or 0


def _read_attributes(pairs: list[_KeyValue] | None, budget: ValueBudget) -> dict[str, Any]:
    attributes = {}
    for pair in pairs or ():
        budget.count_attribute()
        attributes[pair.key] = _read_value(pair.value, budget, 0)
    return attributes


def _read_value(value: _Value | None, budget: ValueBudget, depth: int) -> Any:
    if value is None:
        return None
    if value.string_value is not None:
        return value.string_value
    if value.bool_value is not None:
        return value.bool_value
    if value.int_value is not None:
        return _read_integer(value.int_value)
    if value.double_value is not None:
        number = value.double_value
        return number if isinstance(number, str) else to_json_number(number)
    if value.bytes_value is not None:
        return value.bytes_value
    if depth == MAX_ATTRIBUTE_DEPTH:
        raise SpanFault(f"An attribute is deeper than {MAX_ATTRIBUTE_DEPTH} levels.")
    if value.array_value is not None:
        elements = budget.limit(value.array_value.values or ())
        return [_read_value(element, budget, depth + 1) for element in elements]
    if value.map_value is not None:
        pairs = budget.limit(value.map_value.values or ())
        return {pair.key: _read_value(pair.value, budget, depth + 1) for pair in pairs}
    return None
