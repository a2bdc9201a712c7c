"""POST /v1/traces: spans of OpenTelemetry as evidence (docs/reference/opentelemetry.md)."""

from typing import Final

import orjson
import structlog
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from api.endpoint import authenticate_request, handle_errors
from api.problems import Problem
from api.strictjson import request_body
from traces import export_replies, span_records
from traces.export_replies import JSON, PROTOBUF
from traces.json_spans import decode_json_spans
from traces.protobuf_spans import decode_protobuf_spans
from traces.span_batch import SpanBatch
from traces.spans import MAX_SPANS, REQUEST_BYTES, RequestUnreadable, TooManySpans

log = structlog.get_logger("gatebook.traces")

_DECODERS: Final = {PROTOBUF: decode_protobuf_spans, JSON: decode_json_spans}
_BAD_DATA: Final = (411, 413, 415)  # other client errors about the body are 400 in OTLP
_RETRY_TEXT: Final = (
    "Temporarily unavailable. Send the same spans again; no span is recorded twice."
)


def post_traces(request: HttpRequest) -> HttpResponseBase:
    """Record the tool calls of an ExportTraceServiceRequest; answer as OTLP says."""
    response = _export_spans(request)
    if response.status_code < 400 or not isinstance(response, HttpResponse):
        return response
    problem = orjson.loads(response.content)
    status = response.status_code
    if problem["code"] in ("gzip_invalid", "body_empty", "invalid_utf8", "otlp_invalid"):
        status = 400
    message = _RETRY_TEXT if status == 503 else problem["detail"]
    reply = export_replies.build_failure(status, _read_media_type(request), message)
    for name in ("Retry-After", "WWW-Authenticate", "Allow", "Accept-Encoding"):
        if response.has_header(name):
            reply[name] = response[name]
    return reply


post_traces.csrf_exempt = True  # type: ignore[attr-defined]  # agents carry no cookies


@handle_errors("POST")
def _export_spans(request: HttpRequest) -> HttpResponseBase:
    call = authenticate_request(request)
    media_type = request_body.check_content_type(request, frozenset(_DECODERS))
    body = request_body.read_binary_body(request, limit=REQUEST_BYTES, allow_empty=True)
    call.arrived()
    try:
        batch = SpanBatch(_DECODERS[media_type](body))
    except RequestUnreadable as fault:
        raise Problem(400, "otlp_invalid", str(fault)) from None
    except TooManySpans:
        detail = f"The request has more than {MAX_SPANS} spans or too many values. Send fewer."
        raise Problem(413, "body_too_large", detail) from None
    span_records.record_spans(call, batch)
    response = export_replies.build_success(media_type, batch.faults)
    counts = {
        "recorded": batch.recorded,
        "repeated": batch.repeated,
        "ignored": batch.ignored,
        "rejected": len(batch.faults),
    }
    response["Gatebook-Spans"] = ", ".join(f"{name}={count}" for name, count in counts.items())
    if batch.faults:
        log.info("spans_rejected", agent=call.token.agent_name, **counts)
    return response


def _read_media_type(request: HttpRequest) -> str:
    media_type = (request.content_type or "").strip().lower()
    return media_type if media_type in _DECODERS else JSON
