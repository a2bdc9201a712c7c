"""Doors of the evidence lane: batches of facts, and the receipt of one."""

from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from approvals import policies
from ingest import evidence, redaction, reported_items, strict
from ingest.doors import (
    BATCH_BYTES,
    BATCH_ITEMS,
    ITEM_BYTES,
    Call,
    as_json,
    authenticated,
    guarded,
    reading,
    transact,
)
from ingest.paging import parameters
from ingest.problems import Problem
from ingest.reply import Reply
from journal.models import Entry

_TYPES = frozenset({"application/json", "application/x-ndjson"})


@guarded("POST")
def post_events(request: HttpRequest) -> HttpResponseBase:
    """Keep a batch of facts: 200 when all are kept (or were before), 207 when some could not be."""
    call = authenticated(request)
    whole = _options(call)
    media_type = strict.check_content_type(request, _TYPES)
    lines = media_type == "application/x-ndjson"
    raw = strict.read_body(request, limit=BATCH_BYTES)
    call.arrived()
    parsed = strict.parse_batch(raw, ndjson=lines, max_items=BATCH_ITEMS, max_item_bytes=ITEM_BYTES)
    found, refused = reported_items.read(call, parsed)

    def run() -> Reply:
        results = evidence.record(call, found, refused, whole=whole)
        return Reply(200, {"results": results})

    try:
        results = transact(run, lambda: None).body["results"]
    except evidence.RefusedWhole as refusal:
        detail = "This batch was to be kept whole or not at all; nothing was kept. Mend the items that are named."
        problem = Problem(422, "batch_refused", detail)
        return as_json(422, problem.as_dict() | {"accepted": 0, "results": refusal.results})
    rejected = sum(result["status"] not in ("created", "duplicate") for result in results)
    response = as_json(207 if rejected else 200, {"accepted": len(results) - rejected, "results": results})
    if rejected:
        response["Gatebook-Rejected"] = str(rejected)
    return response


def _options(call: Call) -> bool:
    """Whether all or nothing is to be kept. Problem when the policy is to be asked about imports and cannot be."""
    asked = parameters(call.request, {"atomic", "judge"})
    for name in ("atomic", "judge"):
        if asked.get(name, "false") not in ("true", "false"):
            raise Problem(422, "invalid", f"{name} is true or false.", pointer=f"/{name}")
    if asked.get("judge") == "true":
        if call.token.scope != "import":
            detail = "judge is for tokens of scope import; what every other token reports is judged without it."
            raise Problem(422, "judge_is_for_imports", detail, pointer="/judge")
        if policies.in_force(call.project) is None:
            detail = "No policy is in force in this project, so nothing can be judged; activate one, or send no judge."
            raise Problem(409, "no_policy", detail)
    return asked.get("atomic") == "true"


@reading
def receipt(call: Call) -> HttpResponse:
    """The proof that a fact is in the book: its position and when it was received."""
    asked = parameters(call.request, {"source", "id"})
    if "id" not in asked:
        raise Problem(422, "invalid", "Send the id of the fact, and its source if it is not your agent's name.")
    source = asked.get("source", call.token.agent_name)
    ids = {asked["id"]}
    if call.redaction_key is not None:  # an id with a secret in it is stored as its mark
        ids |= {
            redaction.redact(asked["id"], call.redaction_key)[0],
            redaction.clean_key(asked["id"], call.redaction_key),
        }
    entry = Entry.objects.filter(project=call.project, source=source, event_id__in=ids).order_by("position").first()
    if entry is None:
        raise Problem(404, "not_found", "No fact of that id and source is in the book of this project.")
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
    return as_json(200, {name: value for name, value in body.items() if value is not None})
