"""Requests of OTLP for tests: spans as Python values, in both encodings of the official package."""

import json
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

TRACE = "5b8efff798038103d269b633813fc60c"
START_US = 1_795_167_385_608_000
RESOURCE = {"service.name": "checkout-agent", "service.version": "1.4"}


def tool_span(number: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a span of the GenAI conventions that ran the tool `git.push`; `fields` replace."""
    span: dict[str, Any] = {
        "trace": TRACE,
        "id": f"{number:016x}",
        "parent": "00f067aa0ba902b7",
        "name": "execute_tool git.push",
        "start_us": START_US + number * 1_000,
        "end_us": START_US + number * 1_000 + 500,
        "status": 0,
        "attributes": {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "git.push",
            "gen_ai.tool.call.id": f"call_{number}",
            "gen_ai.tool.call.arguments": json.dumps({"ref": "main", "n": number}),
            "gen_ai.tool.call.result": "pushed",
            "gen_ai.conversation.id": "conv-1",
        },
    }
    attributes = span["attributes"] | fields.pop("attributes", {})
    kept = {name: value for name, value in attributes.items() if value is not None}
    return span | fields | {"attributes": kept}


def to_protobuf(spans: list[dict[str, Any]], resource: dict[str, Any] | None = None) -> bytes:
    """Serialize a request with the official package."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.extend(_pairs(RESOURCE if resource is None else resource))
    scope = group.scope_spans.add()
    scope.scope.name, scope.scope.version = "tests", "1"
    for values in spans:
        span = scope.spans.add()
        span.trace_id, span.span_id = bytes.fromhex(values["trace"]), bytes.fromhex(values["id"])
        span.parent_span_id = bytes.fromhex(values.get("parent", ""))
        span.name, span.kind = values["name"], values.get("kind", 1)
        span.start_time_unix_nano = values["start_us"] * 1_000
        span.end_time_unix_nano = values["end_us"] * 1_000
        span.status.code = values["status"]
        span.status.message = values.get("message", "")
        span.attributes.extend(_pairs(values["attributes"]))
        for exception in values.get("exceptions", ()):
            event = span.events.add()
            event.name = "exception"
            event.attributes.extend(_pairs(exception))
    packed: bytes = request.SerializeToString()
    return packed


def to_json(spans: list[dict[str, Any]], resource: dict[str, Any] | None = None) -> bytes:
    """Write a request as OTLP/JSON: hex ids, integers as text."""
    rows = []
    for values in spans:
        row = {
            "traceId": values["trace"].upper(),
            "spanId": values["id"],
            "parentSpanId": values.get("parent", ""),
            "name": values["name"],
            "kind": values.get("kind", 1),
            "startTimeUnixNano": str(values["start_us"] * 1_000),
            "endTimeUnixNano": str(values["end_us"] * 1_000),
            "attributes": _json_pairs(values["attributes"]),
            "status": {"code": values["status"], "message": values.get("message", "")},
            "events": [
                {"name": "exception", "attributes": _json_pairs(exception)}
                for exception in values.get("exceptions", ())
            ],
            "aFieldOfTomorrow": {"x": [1]},
        }
        rows.append(row)
    shared = {"attributes": _json_pairs(RESOURCE if resource is None else resource)}
    scope = {"scope": {"name": "tests", "version": "1"}, "spans": rows}
    return json.dumps({"resourceSpans": [{"resource": shared, "scopeSpans": [scope]}]}).encode()


def _pairs(attributes: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_any(value)) for key, value in attributes.items()]


def _any(value: Any) -> AnyValue:
    packed = AnyValue()
    if isinstance(value, bool):
        packed.bool_value = value
    elif isinstance(value, int):
        packed.int_value = value
    elif isinstance(value, float):
        packed.double_value = value
    elif isinstance(value, str):
        packed.string_value = value
    elif isinstance(value, bytes):
        packed.bytes_value = value
    elif isinstance(value, list):
        packed.array_value.values.extend(_any(element) for element in value)
        packed.array_value.SetInParent()
    elif isinstance(value, dict):
        packed.kvlist_value.values.extend(_pairs(value))
        packed.kvlist_value.SetInParent()
    return packed


def _json_pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _json_any(value)} for key, value in attributes.items()]


def _json_any(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_json_any(element) for element in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": _json_pairs(value)}}
    return {"stringValue": value} if isinstance(value, str) else {}
