"""Protobuf decoder of OTLP requests: exactly the fields that Gatebook reads.

Spans are decoded as they are taken, so a request needs little more memory than its bytes. Unknown
fields are skipped, as protobuf requires. `tests/traces/test_span_decoders.py` compares the results
with those of the official package.
"""

from collections.abc import Iterator
from struct import unpack_from
from typing import Any, Final

from traces.attribute_values import ValueBudget, encode_bytes, to_json_number
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

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_MAX_GROUPS: Final = 2 * MAX_SPANS  # resources and scopes of one request
_TRUNCATED: Final = "The protobuf body is truncated or damaged. Send it again."


def decode_protobuf_spans(body: bytes) -> Iterator[Span | SpanFault]:
    """Yield the spans of an ExportTraceServiceRequest; a SpanFault for each unusable one.

    Raises RequestUnreadable where the message cannot be followed, TooManySpans beyond the limit.
    """
    groups = spans = 0
    for number, wire, resource_spans in read_fields(body):
        if number != 1 or wire != _BYTES:
            continue
        resource, scopes = b"", []
        groups += 1
        for inner, inner_wire, value in read_fields(resource_spans):
            if inner_wire == _BYTES and inner == 1:
                resource = value
            elif inner_wire == _BYTES and inner == 2:
                scopes.append(value)
            groups += 1
            if groups > _MAX_GROUPS:
                raise TooManySpans
        if groups > _MAX_GROUPS:
            raise TooManySpans
        attributes = _read_resource(resource)
        for scope_spans in scopes:
            source, packed = _read_scope_spans(scope_spans, attributes, MAX_SPANS - spans)
            spans += len(packed)
            for span in packed:
                try:
                    yield _read_span(span, source)
                except (RequestUnreadable, SpanFault) as fault:
                    yield SpanFault(str(fault))


def read_fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of each field. Raises RequestUnreadable.

    A varint is an unsigned int; other values are bytes.
    """
    at, end = 0, len(data)
    try:
        while at < end:
            tag = data[at]
            at += 1
            if tag > 127:
                tag, at = _read_long_varint(data, at - 1)
            wire = tag & 7
            if wire == _BYTES:
                size = data[at]
                at += 1
                if size > 127:
                    size, at = _read_long_varint(data, at - 1)
                stop = at + size
                if stop > end:
                    raise RequestUnreadable(_TRUNCATED)
                yield tag >> 3, wire, data[at:stop]
                at = stop
            elif wire == _VARINT:
                value, at = _read_long_varint(data, at)
                yield tag >> 3, wire, value
            elif wire in (_FIXED64, _FIXED32):
                stop = at + (8 if wire == _FIXED64 else 4)
                if stop > end:
                    raise RequestUnreadable(_TRUNCATED)
                yield tag >> 3, wire, data[at:stop]
                at = stop
            else:
                raise RequestUnreadable("The body is not protobuf. Check its Content-Type.")
            if not tag >> 3:
                raise RequestUnreadable("The body is not protobuf. Check its Content-Type.")
    except IndexError:
        raise RequestUnreadable(_TRUNCATED) from None


def _read_long_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise RequestUnreadable(_TRUNCATED)


def _read_resource(data: bytes) -> dict[str, Any]:
    try:
        budget = ValueBudget()
        return dict(
            _read_key_value(value, budget)
            for number, wire, value in read_fields(data)
            if number == 1 and wire == _BYTES
        )
    except SpanFault as fault:
        raise RequestUnreadable(f"The attributes of a resource are unusable. {fault}") from None


def _read_scope_spans(
    data: bytes, resource: dict[str, Any], most: int
) -> tuple[SpanSource, list[bytes]]:
    name = version = ""
    spans: list[bytes] = []
    for number, wire, value in read_fields(data):
        if wire != _BYTES:
            continue
        if number == 2:
            if len(spans) == most:
                raise TooManySpans
            spans.append(value)
        elif number == 1:
            for inner, inner_wire, text in read_fields(value):
                if inner_wire == _BYTES and inner == 1:
                    name = text.decode(errors="replace")
                elif inner_wire == _BYTES and inner == 2:
                    version = text.decode(errors="replace")
    return SpanSource(resource, name, version), spans


def _read_span(data: bytes, source: SpanSource) -> Span:
    trace = span = parent = name = message = ""
    kind = start = end = status = 0
    attributes: dict[str, Any] = {}
    exceptions: list[dict[str, Any]] = []
    budget = ValueBudget()
    for number, wire, value in read_fields(data):
        if wire == _BYTES:
            if number == 9:
                key, content = _read_key_value(value, budget)
                attributes[key] = content
            elif number == 1:
                trace = value.hex()
            elif number == 2:
                span = value.hex()
            elif number == 4:
                parent = value.hex()
            elif number == 5:
                name = _decode_text(value)
            elif number == 15:
                status, message = _read_status(value)
            elif number == 11 and len(exceptions) < MAX_EXCEPTIONS:
                exceptions.extend(_read_exception(value, budget))
        elif number == 7 and wire == _FIXED64:
            start = unpack_from("<Q", value)[0]
        elif number == 8 and wire == _FIXED64:
            end = unpack_from("<Q", value)[0]
        elif number == 6 and wire == _VARINT:
            kind = value
    check_span_ids(trace, span)
    return Span(
        trace,
        span,
        parent,
        name,
        kind,
        start // 1_000,
        end // 1_000,
        status,
        message,
        attributes,
        tuple(exceptions),
        source,
    )


def _read_status(data: bytes) -> tuple[int, str]:
    status, message = 0, ""
    for number, wire, value in read_fields(data):
        if number == 3 and wire == _VARINT:
            status = value
        elif number == 2 and wire == _BYTES:
            message = _decode_text(value)
    return status, message


def _read_exception(data: bytes, budget: ValueBudget) -> Iterator[dict[str, Any]]:
    """Yield the attributes of an event named `exception`; nothing for other events."""
    if b"\x12\x09exception" not in data:
        return
    name, attributes = b"", {}
    for number, wire, value in read_fields(data):
        if number == 2 and wire == _BYTES:
            name = value
        elif number == 3 and wire == _BYTES:
            key, content = _read_key_value(value, budget)
            attributes[key] = content
    if name == b"exception":
        yield attributes


def _read_key_value(data: bytes, budget: ValueBudget) -> tuple[str, Any]:
    key, content = "", None
    budget.count_attribute()
    for number, wire, value in read_fields(data):
        if wire == _BYTES and number == 1:
            key = _decode_text(value)
        elif wire == _BYTES and number == 2:
            content = _read_value(value, budget, 0)
    return key, content


def _read_value(data: bytes, budget: ValueBudget, depth: int) -> Any:
    result: Any = None
    for number, wire, value in read_fields(data):
        if number == 1 and wire == _BYTES:
            result = _decode_text(value)
        elif number == 2 and wire == _VARINT:
            result = value != 0
        elif number == 3 and wire == _VARINT:
            result = value - (1 << 64) if value >> 63 else value
        elif number == 4 and wire == _FIXED64:
            result = to_json_number(unpack_from("<d", value)[0])
        elif number in (5, 6) and wire == _BYTES:
            if depth == MAX_ATTRIBUTE_DEPTH:
                raise SpanFault(f"An attribute is deeper than {MAX_ATTRIBUTE_DEPTH} levels.")
            result = _read_collection(value, number, budget, depth + 1)
        elif number == 7 and wire == _BYTES:
            result = encode_bytes(value)
    return result


def _read_collection(data: bytes, number: int, budget: ValueBudget, depth: int) -> Any:
    elements = [
        value for inner, wire, value in budget.limit(read_fields(data)) if (inner, wire) == (1, 2)
    ]
    if number == 5:
        return [_read_value(element, budget, depth) for element in elements]
    result = {}
    for element in elements:
        key, content = "", None
        for inner, wire, value in read_fields(element):
            if wire == _BYTES and inner == 1:
                key = _decode_text(value)
            elif wire == _BYTES and inner == 2:
                content = _read_value(value, budget, depth)
        result[key] = content
    return result


def _decode_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SpanFault("A text is not valid UTF-8. Send valid Unicode.") from None
