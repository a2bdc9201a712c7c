"""Endpoints of the evidence lane: batches of facts, and the receipt of a fact."""

from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from api.endpoint import (
    BATCH_BYTES,
    BATCH_ITEMS,
    ITEM_BYTES,
    Call,
    authenticate_request,
    build_json_response,
    get_endpoint,
    handle_errors,
    transact,
)
from api.events import parse, record
from api.idempotency import Reply
from api.pagination import check_choice, parse_parameters
from api.problems import Problem
from api.redaction import redact
from api.strictjson import parser
from approvals.policies import policy_evaluation
from journal.models import Entry

_MEDIA_TYPES = frozenset({"application/json", "application/x-ndjson"})


@handle_errors("POST")
def post_events(request: HttpRequest) -> HttpResponseBase:
    """Record a batch of facts: 200 if all are recorded, 207 if some are not."""
    call = authenticate_request(request)
    atomic = _read_options(call)
    media_type = parser.check_content_type(request, _MEDIA_TYPES)
    lines = media_type == "application/x-ndjson"
    raw = parser.read_body(request, limit=BATCH_BYTES)
    call.arrived()
    parsed = parser.parse_batch(raw, ndjson=lines, max_items=BATCH_ITEMS, max_item_bytes=ITEM_BYTES)
    items, rejected_results = parse.parse_items(call, parsed)

    def run() -> Reply:
        results = record.record_batch(call, items, rejected_results, atomic=atomic)
        return Reply(200, {"results": results})

    try:
        reply = transact(run, lambda: None)
    except record.AtomicBatchRejected as rejection:
        detail = "Batch rejected (`atomic=true`). Fix the listed items and resend."
        problem = Problem(422, "batch_refused", detail)
        return build_json_response(
            422, problem.as_dict() | {"accepted": 0, "results": rejection.results}
        )
    return _build_batch_response(reply.body["results"])


def _build_batch_response(results: list[record.Result]) -> HttpResponse:
    """Build the response: 200 if all items are recorded, 207 if some are not."""
    rejected_count = sum(not record.is_accepted(result) for result in results)
    response = build_json_response(
        207 if rejected_count else 200,
        {"accepted": len(results) - rejected_count, "results": results},
    )
    if rejected_count:
        response["Gatebook-Rejected"] = str(rejected_count)
    return response


def _read_options(call: Call) -> bool:
    """Return whether the batch is atomic. Problem if `evaluate_policies` is not applicable."""
    params = parse_parameters(call.request, {"atomic", "evaluate_policies"})
    for name in ("atomic", "evaluate_policies"):
        check_choice(params, name, ("true", "false"))
    if params.get("evaluate_policies") == "true":
        if call.token.scope != "import":
            detail = (
                "`evaluate_policies` is only for tokens with scope `import`. Omit it; other reports"
                " are always evaluated."
            )
            raise Problem(
                422, "evaluate_policies_is_for_imports", detail, pointer="/evaluate_policies"
            )
        if policy_evaluation.load_active_policy(call.project) is None:
            detail = "The project has no active policy. Activate one, or omit `evaluate_policies`."
            raise Problem(409, "no_policy", detail)
    return params.get("atomic") == "true"


@get_endpoint
def get_receipt(call: Call) -> HttpResponse:
    """Return the journal position and receipt time of a fact."""
    params = parse_parameters(call.request, {"source", "id"})
    if "id" not in params:
        raise Problem(
            422,
            "invalid",
            "The parameter `id` is missing. Send it, and `source` if it is not your agent's name.",
        )
    source = params.get("source", call.token.agent_name)
    ids = {params["id"]}
    if call.redaction_key is not None:  # an id that contains a secret is stored redacted
        ids |= {
            redact.redact_value(params["id"], call.redaction_key)[0],
            redact.redact_key(params["id"], call.redaction_key),
        }
    entry = (
        Entry.objects.filter(project=call.project, source=source, event_id__in=ids)
        .order_by("position")
        .first()
    )
    if entry is None:
        raise Problem(
            404,
            "not_found",
            "The project has no fact with this id and source. If you sent it, send it again.",
        )
    facts: dict[str, Any] = orjson.loads(entry.facts)
    body = {
        "position": entry.position,
        "id": entry.event_id,
        "source": entry.source,
        "kind": entry.kind,
        "lane": entry.lane,
        "session": str(entry.session) if entry.session else None,
        "effect": str(entry.effect) if entry.effect else None,
        "attempt": entry.attempt,
        "occurred_us": entry.occurred_us,
        "received_us": entry.received_us,
        "facts": facts,
        "body_commit": bytes(entry.body_commit).hex() if entry.body_commit else None,
    }
    return build_json_response(
        200, {name: value for name, value in body.items() if value is not None}
    )
