"""Working state in the OpenAPI document: checkpoints, decisions, handoffs, facts."""

from typing import Any, Final

from api.openapi.operation import Endpoint, build_object_schema
from api.schemas import core
from api.schemas import working_state as shapes
from sessions.models import DECISION_STATES

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_ID: Final = {"type": "string", "format": "uuid"}
_BOOLEAN: Final = {"type": "boolean"}

ENDPOINTS: Final = (
    Endpoint(
        "post",
        "/sessions/{session}/change",
        "changeSession",
        "Change a session. Omitted fields keep their values.",
        {200: "SessionBrief"},
        core.ChangeSession,
        tag="sessions",
        if_match=True,
    ),
    Endpoint(
        "post",
        "/sessions/{session}/merged",
        "mergeSession",
        "Record into which session a branch was merged.",
        {200: "SessionBrief"},
        core.MergeSession,
        tag="sessions",
        if_match=True,
    ),
    Endpoint(
        "post",
        "/sessions/{session}/checkpoints",
        "writeCheckpoint",
        "Store a checkpoint of the work. The latest five are kept.",
        {201: "CheckpointBrief"},
        shapes.WriteCheckpoint,
        tag="work",
    ),
    Endpoint(
        "get",
        "/sessions/{session}/checkpoints",
        "listCheckpoints",
        "List the latest five checkpoints without `state`.",
        {200: "Checkpoints"},
        tag="work",
    ),
    Endpoint(
        "get",
        "/checkpoints/{checkpoint}",
        "getCheckpoint",
        "Return one checkpoint with its `state`.",
        {200: "Checkpoint"},
        tag="work",
    ),
    Endpoint(
        "post",
        "/sessions/{session}/decisions",
        "recordDecision",
        "Record a decision before acting on it.",
        {201: "DecisionBrief", 200: "DecisionBrief"},
        shapes.RecordDecision,
        tag="work",
    ),
    Endpoint(
        "get",
        "/sessions/{session}/decisions",
        "listDecisions",
        "List decisions, newest first. `open=1` returns only open decisions.",
        {200: "Page"},
        query=("open", "limit", "after"),
        tag="work",
    ),
    Endpoint(
        "post",
        "/decisions/{decision}/conclude",
        "concludeDecision",
        "Record how a decision ended.",
        {200: "DecisionBrief"},
        shapes.ConcludeDecision,
        tag="work",
        if_match=True,
    ),
    Endpoint(
        "post",
        "/sessions/{session}/handoffs",
        "writeHandoff",
        "Write a handoff for the next worker.",
        {201: "HandoffBrief"},
        shapes.WriteHandoff,
        tag="work",
    ),
    Endpoint(
        "get",
        "/sessions/{session}/handoffs",
        "listHandoffs",
        "List handoffs, newest first.",
        {200: "Page"},
        query=("limit", "after"),
        tag="work",
    ),
    Endpoint(
        "post",
        "/handoffs/{handoff}/accept",
        "acceptHandoff",
        "Accept a handoff. Only the first worker gets it.",
        {200: "HandoffBrief"},
        shapes.AcceptHandoff,
        tag="work",
        if_match=True,
    ),
    Endpoint(
        "post",
        "/sessions/{session}/facts",
        "observeFact",
        "Record a named value as observed from a source.",
        {201: "FactBrief"},
        shapes.ObserveFact,
        tag="work",
    ),
    Endpoint(
        "get",
        "/sessions/{session}/facts",
        "listFacts",
        "List observed facts, newest first. `fresh=1` returns only facts that have not expired.",
        {200: "Page"},
        query=("name", "fresh", "limit", "after"),
        tag="work",
    ),
)

WORK_ENUMS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("listDecisions", "open"): ("0", "1"),
    ("listFacts", "fresh"): ("0", "1"),
}

_CHECKPOINT: Final = build_object_schema(
    {
        "id": _ID,
        "position": _NUMBER,
        "session": _ID,
        "bytes": _NUMBER,
        "erased": _BOOLEAN,
        "created_at_us": _NUMBER,
    },
    summary={"type": ["string", "null"]},
    cursor={"type": ["string", "null"]},
    cache_keys={"type": "array", "items": _TEXT},
    pins={"type": "object"},
    state={},
)
ANSWERS: Final[dict[str, Any]] = {
    "CheckpointBrief": build_object_schema({"id": _ID, "position": _NUMBER, "bytes": _NUMBER}),
    "Checkpoint": _CHECKPOINT,
    "Checkpoints": build_object_schema({"items": {"type": "array", "items": _CHECKPOINT}}),
    "DecisionBrief": build_object_schema(
        {"id": _ID, "key": _TEXT, "status": {"enum": list(DECISION_STATES)}, "version": _NUMBER}
    ),
    "HandoffBrief": build_object_schema(
        {
            "id": _ID,
            "position": _NUMBER,
            "bytes": _NUMBER,
            "over_budget": _BOOLEAN,
            "accepted": _BOOLEAN,
            "version": _NUMBER,
        }
    ),
    "FactBrief": build_object_schema(
        {
            "name": _TEXT,
            "source": _TEXT,
            "fresh_until_us": _NUMBER,
            "drift": _BOOLEAN,
            "position": _NUMBER,
        }
    ),
}
