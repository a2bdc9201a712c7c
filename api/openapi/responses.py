"""Schemas of the responses in the OpenAPI document."""

from typing import Any, Final

from api.openapi import leases, resume, verdicts, working_state
from api.openapi.operation import build_object_schema
from approvals.gates.statuses import GATE_STATUSES, RISKS
from display.index_progress import REPEATS, STUCK, WORDS
from investigation.query.entity_registry import NAMES as QUERIED
from ledger import resolutions
from ledger.states import PERMISSION_BASES, PERMISSIONS, STATES, TOOL_CLASSES
from sessions.messages import INBOXES

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_ID: Final = {"type": "string", "format": "uuid"}

_GATE: Final = build_object_schema(
    {
        "id": _ID,
        "handle": _TEXT,
        "effect": _ID,
        "session": _ID,
        "session_key": _TEXT,
        "effect_key": _TEXT,
        "page": _TEXT,
        "tool": _TEXT,
        "status": {"enum": list(GATE_STATUSES)},
        "version": _NUMBER,
        "proceed": {"type": "boolean"},
        "stopped": {"type": "boolean"},
        "reason": {"type": ["string", "null"]},
        "risk": {"enum": list(RISKS)},
        "requested_at_us": _NUMBER,
        "decide_by_us": _NUMBER,
        "permission_until_us": {"type": ["integer", "null"]},
        "comments": {
            "type": "array",
            "items": build_object_schema({"at_us": _NUMBER, "text": _TEXT}),
        },
    },
    call_id=_TEXT,
    message=_TEXT,
)
_MESSAGE: Final = build_object_schema(
    {"id": _ID, "handle": _TEXT, "box": {"enum": list(INBOXES)}},
    subject=_TEXT,
    body=_TEXT,
    sent_at_us=_NUMBER,
    read_at_us={"type": ["integer", "null"]},
)
_OPTIONAL_TEXT = {"type": ["string", "null"]}
_TIME = {
    "type": ["string", "null"],
    "description": "RFC 3339, from 1970 on",
    "pattern": "^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3])"
    "(:[0-5][0-9]){2}(\\.[0-9]{1,9})?(Z|[+-](0[0-9]|1[0-2]):[0-5][0-9])$(?!\\n)",
}
_PLAIN_TEXT = {"type": "string", "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]+$(?!\\n)"}

RESPONSE_SCHEMAS: Final[dict[str, Any]] = {
    "Problem": build_object_schema(
        {"type": _TEXT, "title": _TEXT, "status": _NUMBER, "code": _TEXT, "detail": _TEXT},
        pointer=_TEXT,
        at=_NUMBER,
        length=_NUMBER,
    ),
    "SessionBrief": build_object_schema(
        {"id": _ID, "handle": _TEXT, "key": _TEXT, "status": _TEXT, "version": _NUMBER}
    ),
    "TaskBrief": build_object_schema(
        {"id": _ID, "handle": _TEXT, "key": _TEXT, "state": _TEXT, "version": _NUMBER},
        open_tasks=_NUMBER,
        open_items=_NUMBER,
    ),
    **working_state.ANSWERS,
    **verdicts.ANSWERS,
    **resume.ANSWERS,
    **leases.ANSWERS,
    "Effect": build_object_schema(
        {
            "id": _ID,
            "handle": _TEXT,
            "session": _ID,
            "effect_key": _TEXT,
            "tool": _TEXT,
            "state": {"enum": list(STATES)},
            "permission": {"enum": list(PERMISSIONS)},
            "answer": {"enum": ["proceed", "wait", "blocked", "done", "ambiguous"]},
        },
        permission_basis={"enum": [basis for basis in PERMISSION_BASES if basis]},
        call_id=_TEXT,
        gate=build_object_schema({"id": _ID, "wait": _TEXT, "page": _TEXT}),
        intent_digest=_TEXT,
        attempt=_NUMBER,
        remote_key=_TEXT,
        request_lifetime_s=_NUMBER,
        outcome=_TEXT,
        external_reference=_TEXT,
        policy_outcome={"enum": ["allow", "ask", "deny"]},
        policy_rule=_TEXT,
        open_effect=_ID,
        same_calls={"type": "array", "items": {"type": "object"}},
        redactions=_NUMBER,
        attempts={"type": "array", "items": {"type": "object"}},
        attempts_in_all=_NUMBER,
        meta={"type": "object"},
        resolution=build_object_schema(
            {
                "answer": {"enum": list(resolutions.ANSWERS)},
                "by": _TEXT,
                "at_us": _NUMBER,
                "position": _NUMBER,
            },
            attempt={"type": ["integer", "null"]},
        ),
    ),
    "PlanBody": build_object_schema(
        {"effect": _ID, "effect_key": _TEXT, "redactions": _NUMBER},
        planned_at_us=_NUMBER,
        tool=_TEXT,
        arguments={},
        target={"type": "object"},
        preconditions={"type": "object"},
        free_text={"type": "array"},
        call_id=_TEXT,
        turn=_TEXT,
        why=_TEXT,
        meta={"type": "object"},
    ),
    "StoredResult": build_object_schema(
        {
            "effect": _ID,
            "handle": _TEXT,
            "effect_key": _TEXT,
            "tool": _TEXT,
            "state": {"enum": list(STATES)},
            "stored": {"enum": ["result", "none", "erased"]},
            "redacted": {"type": "boolean"},
        },
        call_id=_TEXT,
        outcome=_TEXT,
        external_reference=_TEXT,
        attempt=_NUMBER,
        position=_NUMBER,
        reason=_TEXT,
        detail={},
        result={},
    ),
    "Gate": _GATE,
    "Gates": build_object_schema(
        {"gates": {"type": "array", "items": _GATE}, "changed": {"type": "array", "items": _ID}}
    ),
    "ArtifactBrief": build_object_schema(
        {"id": _ID, "handle": _TEXT, "stored": {"type": "boolean"}, "upload": _TEXT}
    ),
    "Capacity": build_object_schema(
        {"reported_at_us": _NUMBER, "fresh": {"type": "boolean"}, "paced": {"type": "boolean"}},
        session={"type": ["string", "null"]},
        paced_for={"enum": ["context", "time", "queue", None]},
    ),
    "MessageBrief": _MESSAGE,
    "Message": _MESSAGE,
    "Page": build_object_schema(
        {
            "items": {"type": "array", "items": {"type": "object"}},
            "next": {"type": ["string", "null"]},
        }
    ),
    "Found": build_object_schema(
        {
            "entity": {"enum": list(QUERIED)},
            "rows": {"type": "array", "items": {"type": "object"}},
            "groups": {"type": ["object", "null"]},
            "notes": {"type": "array", "items": _TEXT},
            "indexes": {
                "type": "array",
                "items": build_object_schema(
                    {
                        "index": {"enum": [WORDS, REPEATS, STUCK]},
                        "read_to": _NUMBER,
                        "of": _NUMBER,
                        "missing": _NUMBER,
                        "complete": {"type": "boolean"},
                    }
                ),
            },
            "next": {"type": ["string", "null"]},
            "newer": {"type": ["string", "null"]},
            "as_of": _NUMBER,
        }
    ),
    "Items": build_object_schema(
        {"items": {"type": "array"}, "pending": _NUMBER, "done": _NUMBER, "failed": _NUMBER}
    ),
    "Progress": build_object_schema(
        {"task": _ID, "pending": _NUMBER, "done": _NUMBER, "failed": _NUMBER, "version": _NUMBER}
    ),
    "CloudEvent": build_object_schema(
        {
            "specversion": {"const": "1.0"},
            "id": _PLAIN_TEXT,
            "source": _PLAIN_TEXT,
            "type": _PLAIN_TEXT,
        },
        time=_TIME,
        subject=_OPTIONAL_TEXT,
        datacontenttype=_OPTIONAL_TEXT,
        dataschema=_OPTIONAL_TEXT,
        sessionid={"type": ["string", "integer", "boolean", "null"]},
        data={},
        data_base64={"type": "string", "pattern": "^([A-Za-z0-9+/]{4}){0,9999}$(?!\\n)"},
    )
    | {"not": {"required": ["data", "data_base64"]}},
    "BatchAnswer": build_object_schema(
        {
            "accepted": _NUMBER,
            "results": {
                "type": "array",
                "items": build_object_schema(
                    {
                        "index": _NUMBER,
                        "id": {"type": ["string", "null"]},
                        "status": {
                            "enum": ["created", "duplicate", "conflict", "invalid", "too_large"]
                        },
                    },
                    code=_TEXT,
                    detail=_TEXT,
                    pointer=_TEXT,
                    retryable={"type": "boolean"},
                    note={"enum": ["other_agent", "lease_lost"]},
                ),
            },
        }
    ),
    "Receipt": build_object_schema(
        {"position": _NUMBER, "id": _TEXT, "source": _TEXT, "kind": _TEXT, "received_us": _NUMBER}
    ),
    "Tool": build_object_schema(
        {
            "name": _TEXT,
            "declared": {"type": "boolean"},
            "class": {"enum": list(TOOL_CLASSES)},
            "reversibility": _TEXT,
            "deadline_s": _NUMBER,
            "request_lifetime_s": _NUMBER,
            "max_attempts": _NUMBER,
            "probe": {"type": "boolean"},
        }
    ),
    "Limits": build_object_schema(
        {"batch_items": _NUMBER, "batch_bytes": _NUMBER, "item_bytes": _NUMBER, "depth": _NUMBER}
    ),
}
