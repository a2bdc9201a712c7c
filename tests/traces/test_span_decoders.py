"""Both decoders read what the official package writes, and no body costs more than its limit."""

import json
import struct
import tracemalloc
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.matrices import count_examples
from tests.traces.otlp_requests import START_US, TRACE, to_json, to_protobuf, tool_span
from traces import json_spans, protobuf_spans
from traces.spans import MAX_SPANS, RequestUnreadable, Span, SpanFault, TooManySpans

VALUES: dict[str, Any] = {
    "text": "Grüße \x00 \U0001f600",
    "true": True,
    "false": False,
    "negative": -(2**63),
    "large": 2**63 - 1,
    "float": 0.5,
    "list": ["a", 1, [True]],
    "map": {"k": {"n": [1.5]}},
    "empty": [],
}


def read_both(*spans: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    rows = list(spans)
    return (
        list(protobuf_spans.decode_protobuf_spans(to_protobuf(rows))),
        list(json_spans.decode_json_spans(to_json(rows))),
    )


def test_both_encodings_give_the_same_span() -> None:
    sent = tool_span(
        7, attributes=VALUES, status=2, message="broken", exceptions=[{"exception.type": "OSError"}]
    )
    (from_protobuf,), (from_json,) = read_both(sent)
    assert from_protobuf == from_json
    assert isinstance(from_json, Span)
    assert (from_json.trace, from_json.id) == (TRACE, f"{7:016x}")
    assert from_json.start_us == START_US + 7_000
    assert (from_json.status, from_json.status_message) == (2, "broken")
    assert from_json.exceptions == ({"exception.type": "OSError"},)
    assert {name: from_json.attributes[name] for name in VALUES} == VALUES
    assert from_json.source.resource["service.name"] == "checkout-agent"
    assert (from_json.source.scope, from_json.source.scope_version) == ("tests", "1")


def test_numbers_that_json_lacks_become_their_names_and_bytes_base64() -> None:
    numbers = {"nan": float("nan"), "more": float("inf"), "less": float("-inf"), "raw": b"\xff\x00"}
    (span,) = protobuf_spans.decode_protobuf_spans(to_protobuf([tool_span(attributes=numbers)]))
    assert isinstance(span, Span)
    assert [span.attributes[name] for name in numbers] == ["NaN", "Infinity", "-Infinity", "/wA="]


VALUE = st.recursive(
    st.text(max_size=8) | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e6, 1e6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=count_examples(20, 60), deadline=None)
@given(st.dictionaries(st.text(max_size=20), VALUE, max_size=6))
def test_any_attributes_are_read_as_they_were_written(attributes: dict[str, Any]) -> None:
    for decoded in read_both(tool_span(attributes=attributes)):
        (span,) = decoded
        assert isinstance(span, Span)
        assert {name: span.attributes[name] for name in attributes} == attributes


@settings(max_examples=count_examples(40, 150), deadline=None)
@given(st.binary(max_size=80), st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_body_is_refused_or_read_as_the_official_package_reads_it(
    noise: bytes, at: int, byte: int
) -> None:
    sound = to_protobuf([tool_span()])
    damaged = sound[: at % len(sound)] + bytes([byte]) + sound[at % len(sound) + 1 :]
    for body in (noise, damaged, sound[: at % len(sound)]):
        try:
            spans = list(protobuf_spans.decode_protobuf_spans(body))
        except (RequestUnreadable, TooManySpans):
            continue
        if any(isinstance(span, SpanFault) for span in spans):
            continue
        try:
            official = ExportTraceServiceRequest.FromString(body)
        except DecodeError:
            continue  # the official package also checks what Gatebook skips, such as link ids
        theirs = [
            span.span_id.hex()
            for group in official.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]
        assert [span.id for span in spans] == theirs  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        ("W47/95gDgQPSabYzgT/GDA==", "32 hex"),  # base64, as the JSON form of protobuf has it
        ("5b8efff798038103", "32 hex"),
        ("0" * 32, "zero"),
        ("", "32 hex"),
        ("g" * 32, "32 hex"),
    ],
)
def test_an_id_that_is_no_hex_costs_only_its_span(identity: str, reason: str) -> None:
    body = to_json([tool_span(1), tool_span(2)]).replace(
        TRACE.upper().encode(), identity.encode(), 1
    )
    fault, span = json_spans.decode_json_spans(body)
    assert isinstance(fault, SpanFault)
    assert reason in str(fault)
    assert isinstance(span, Span)


@pytest.mark.parametrize("name", ["execute_tool", "\\ud800", '"', "\\u0000"])
def test_a_lone_surrogate_costs_only_its_span(name: str) -> None:
    body = to_json([tool_span(1), tool_span(2)])
    body = body.replace(b'"name": "execute_tool git.push"', b'"name": "' + name.encode() + b'"', 1)
    if name == '"':
        with pytest.raises(RequestUnreadable):
            list(json_spans.decode_json_spans(body))
        return
    first, second = json_spans.decode_json_spans(body)
    assert isinstance(first, SpanFault if name == "\\ud800" else Span)
    assert isinstance(second, Span)


def test_text_that_is_no_utf8_costs_only_its_span() -> None:
    body = to_protobuf([tool_span(1), tool_span(2)]).replace(b"pushed", b"push\xed\xa0", 1)
    fault, span = protobuf_spans.decode_protobuf_spans(body)
    assert "UTF-8" in str(fault)
    assert isinstance(span, Span)


@pytest.mark.parametrize(
    "body",
    [b"[]", b"null", b'{"resourceSpans": 1}', b"", b"{", b'{"resourceSpans":[{"scopeSpans":{}}]}'],
)
def test_a_body_that_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(RequestUnreadable):
        list(json_spans.decode_json_spans(body))


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\x05ab",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0b",
        b"\x00\x00",
        b"{}",
    ],
)
def test_bytes_that_are_no_request_are_refused(body: bytes) -> None:
    with pytest.raises(RequestUnreadable):
        list(protobuf_spans.decode_protobuf_spans(body))


def pack(number: int, content: bytes) -> bytes:
    size, packed = len(content), b""
    while size > 127:
        packed, size = packed + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + packed + bytes([size]) + content


MILLION = 1_000_000
EMPTY_SPANS = pack(1, pack(2, b"\x12\x00" * MILLION))
EMPTY_SCOPES = pack(1, b"\x12\x00" * MILLION)
EMPTY_RESOURCES = b"\x0a\x00" * MILLION
EMPTY_JSON_SPANS = b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * MILLION + b"{}]}]}]}"
EMPTY_JSON_SCOPES = b'{"resourceSpans":[{"scopeSpans":[' + b"{}," * MILLION + b"{}]}]}"


@pytest.mark.parametrize(
    "body",
    [EMPTY_SPANS, EMPTY_SCOPES, EMPTY_JSON_SPANS, EMPTY_JSON_SCOPES, EMPTY_RESOURCES],
    ids=["spans", "scopes", "json_spans", "json_scopes", "resources"],
)
def test_a_million_spans_are_refused_within_bounded_memory(body: bytes) -> None:
    decode: Any = (
        json_spans.decode_json_spans if body[:1] == b"{" else protobuf_spans.decode_protobuf_spans
    )
    tracemalloc.start()
    try:
        with pytest.raises(TooManySpans):
            for _span in decode(body):
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(body) + 4_000_000


def test_as_many_spans_as_allowed_are_read() -> None:
    spans = [tool_span(number, attributes={}) for number in range(1, 201)]
    body = to_protobuf(spans) * (MAX_SPANS // 200)
    assert sum(1 for _ in protobuf_spans.decode_protobuf_spans(body)) == MAX_SPANS
    with pytest.raises(TooManySpans):
        list(protobuf_spans.decode_protobuf_spans(body + to_protobuf(spans[:1])))


def test_a_span_with_too_much_in_it_costs_only_itself() -> None:
    crowded = tool_span(1, attributes={f"a{number}": 1 for number in range(1_001)})
    long = tool_span(2, attributes={"list": list(range(10_001))})
    deep: Any = "x"
    for _level in range(20):
        deep = [deep]
    nested = tool_span(3, attributes={"deep": deep})
    for decoded in read_both(crowded, long, nested, tool_span(4)):
        assert [type(span) for span in decoded] == [SpanFault, SpanFault, SpanFault, Span]


def test_the_other_forms_of_numbers_in_json_are_read() -> None:
    document = json.loads(to_json([tool_span()]))
    span = document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    span |= {"startTimeUnixNano": 1_000_000, "status": None, "parentSpanId": None, "events": None}
    span["attributes"] += [
        {"key": "int", "value": {"intValue": 5}},
        {"key": "name", "value": {"doubleValue": "NaN"}},
        {"key": "none"},
    ]
    (read,) = json_spans.decode_json_spans(json.dumps(document).encode())
    assert isinstance(read, Span)
    assert (read.start_us, read.parent, read.status) == (1_000, "", 0)
    assert [read.attributes[name] for name in ("int", "name", "none")] == [5, "NaN", None]
    span["attributes"] = [{"key": "int", "value": {"intValue": "0x5"}}]
    (fault,) = json_spans.decode_json_spans(json.dumps(document).encode())
    assert "decimal" in str(fault)


def test_fixed_numbers_that_are_cut_are_refused() -> None:
    cut = pack(1, pack(2, pack(2, b"\x39" + struct.pack("<I", 1))))
    (fault,) = protobuf_spans.decode_protobuf_spans(cut)
    assert "truncated" in str(fault)
