"""POST /cloudevents: CloudEvents as evidence (api/events/cloudevents.py)."""

from typing import Final

from django.http import HttpRequest, HttpResponse, HttpResponseBase

from api.endpoint import (
    BATCH_BYTES,
    BATCH_ITEMS,
    ITEM_BYTES,
    Call,
    authenticate_request,
    build_json_response,
    handle_errors,
    transact,
)
from api.events import cloudevents, parse, record
from api.idempotency import Reply
from api.problems import Problem
from api.strictjson import parser, request_body
from api.strictjson.canonical_json import to_canonical_text
from api.strictjson.parser import ItemFault, Parsed

_STATUS_OF_RESULT: Final = {"conflict": 409, "too_large": 413}


@handle_errors("POST")
def post_cloudevents(request: HttpRequest) -> HttpResponseBase:
    """Record an event, or all events of a batch. Only 200 means that they are recorded."""
    call = authenticate_request(request)
    media_type = (request.content_type or "").strip().lower()
    if media_type == cloudevents.BATCHED:
        raw = parser.read_body(request, limit=BATCH_BYTES)
        call.arrived()
        events = parser.parse_batch(
            raw, ndjson=False, max_items=BATCH_ITEMS, max_item_bytes=ITEM_BYTES
        )
        return _record_batch(call, cloudevents.to_items(events))
    item = cloudevents.build_item(_read_event(call, media_type))
    return _record_event(call, Parsed(item, to_canonical_text(item)))


def _read_event(call: Call, media_type: str) -> dict[str, object]:
    """Return the only event of a request, structured or binary."""
    request = call.request
    if media_type == cloudevents.STRUCTURED:
        raw = parser.read_body(request, limit=ITEM_BYTES)
        call.arrived()
        return parser.parse_object(raw).value
    if "HTTP_CE_SPECVERSION" not in request.META:
        detail = (
            f"The request is not a CloudEvent. Send {cloudevents.STRUCTURED},"
            f" {cloudevents.BATCHED}, or `ce-` headers."
        )
        raise Problem(415, "unsupported_media_type", detail)
    raw = request_body.read_binary_body(request, limit=ITEM_BYTES, allow_empty=True)
    call.arrived()
    return cloudevents.read_binary_event(request.META, raw)


def _record_event(call: Call, item: Parsed) -> HttpResponse:
    """Record one event: a problem unless it is recorded, now or before."""
    items, rejected_results = parse.parse_items(call, [item])

    def run() -> Reply:
        results = record.record_batch(call, items, rejected_results, atomic=False)
        return Reply(200, {"results": results})

    (result,) = transact(run, lambda: None).body["results"]
    if record.is_accepted(result):
        return build_json_response(200, {"accepted": 1, "results": [result]})
    status = _STATUS_OF_RESULT.get(result["status"], 422)
    raise Problem(status, result["code"], result["detail"], pointer=result.get("pointer"))


def _record_batch(call: Call, events: list[Parsed | ItemFault]) -> HttpResponse:
    """Record all events of a batch or none, because senders read only the status."""
    items, rejected_results = parse.parse_items(call, events)

    def run() -> Reply:
        results = record.record_batch(call, items, rejected_results, atomic=True)
        return Reply(200, {"results": results})

    try:
        results = transact(run, lambda: None).body["results"]
    except record.AtomicBatchRejected as rejection:
        detail = "Batch rejected: it is recorded as a whole. Fix the listed events and resend."
        problem = Problem(422, "batch_refused", detail)
        return build_json_response(
            422, problem.as_dict() | {"accepted": 0, "results": rejection.results}
        )
    return build_json_response(200, {"accepted": len(results), "results": results})
