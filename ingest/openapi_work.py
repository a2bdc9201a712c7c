"""The part of the API's description that speaks of working state."""

from typing import Any, Final

from ingest import shapes_work as shapes
from ingest.endpoints import Endpoint, with_fields
from sessions.models_state import DECISION_STATES

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_ID: Final = {"type": "string", "format": "uuid"}
_FLAG: Final = {"type": "boolean"}

ENDPOINTS: Final = (
    Endpoint("post", "/sessions/{session}/change", "changeSession", "Change a session; what is not sent stays.",
             {200: "SessionBrief"}, shapes.ChangeSession, tag="sessions", if_match=True),
    Endpoint("post", "/sessions/{session}/merged", "mergeSession", "Say into which session a branch was merged.",
             {200: "SessionBrief"}, shapes.MergeSession, tag="sessions", if_match=True),
    Endpoint("post", "/sessions/{session}/checkpoints", "writeCheckpoint", "Keep where the work stands.",
             {201: "CheckpointBrief"}, shapes.WriteCheckpoint, tag="work"),
    Endpoint("get", "/sessions/{session}/checkpoints", "listCheckpoints", "The latest five, without their states.",
             {200: "Checkpoints"}, tag="work"),
    Endpoint("get", "/checkpoints/{checkpoint}", "getCheckpoint", "One checkpoint with its state.",
             {200: "Checkpoint"}, tag="work"),
    Endpoint("post", "/sessions/{session}/decisions", "recordDecision", "Write a decision down before acting on it.",
             {201: "DecisionBrief", 200: "DecisionBrief"}, shapes.RecordDecision, tag="work"),
    Endpoint("get", "/sessions/{session}/decisions", "listDecisions", "Decisions, newest first; open=1: unconcluded.",
             {200: "Page"}, query=("open", "limit", "after"), tag="work"),
    Endpoint("post", "/decisions/{decision}/conclude", "concludeDecision", "Say how a decision ended.",
             {200: "DecisionBrief"}, shapes.ConcludeDecision, tag="work", if_match=True),
    Endpoint("post", "/sessions/{session}/handoffs", "writeHandoff", "Tell the next worker what it needs.",
             {201: "HandoffBrief"}, shapes.WriteHandoff, tag="work"),
    Endpoint("get", "/sessions/{session}/handoffs", "listHandoffs", "Handoffs, newest first.", {200: "Page"},
             query=("limit", "after"), tag="work"),
    Endpoint("post", "/handoffs/{handoff}/accept", "acceptHandoff", "Take a handoff up; the first has it.",
             {200: "HandoffBrief"}, shapes.AcceptHandoff, tag="work", if_match=True),
    Endpoint("post", "/sessions/{session}/facts", "observeFact", "Record what a source says of a named value.",
             {201: "FactBrief"}, shapes.ObserveFact, tag="work"),
    Endpoint("get", "/sessions/{session}/facts", "listFacts", "What sources say, newest first; fresh=1: what holds.",
             {200: "Page"}, query=("name", "fresh", "limit", "after"), tag="work"),
)  # fmt: skip

WORDS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("listDecisions", "open"): ("0", "1"),
    ("listFacts", "fresh"): ("0", "1"),
}

_CHECKPOINT: Final = with_fields(
    {"id": _ID, "position": _NUMBER, "session": _ID, "bytes": _NUMBER, "erased": _FLAG, "created_at_us": _NUMBER},
    summary={"type": ["string", "null"]},
    cursor={"type": ["string", "null"]},
    cache_keys={"type": "array", "items": _TEXT},
    pins={"type": "object"},
    state={},
)
ANSWERS: Final[dict[str, Any]] = {
    "CheckpointBrief": with_fields({"id": _ID, "position": _NUMBER, "bytes": _NUMBER}),
    "Checkpoint": _CHECKPOINT,
    "Checkpoints": with_fields({"items": {"type": "array", "items": _CHECKPOINT}}),
    "DecisionBrief": with_fields(
        {"id": _ID, "key": _TEXT, "status": {"enum": list(DECISION_STATES)}, "version": _NUMBER}
    ),
    "HandoffBrief": with_fields(
        {"id": _ID, "position": _NUMBER, "bytes": _NUMBER, "over_budget": _FLAG, "accepted": _FLAG, "version": _NUMBER}
    ),
    "FactBrief": with_fields(
        {"name": _TEXT, "source": _TEXT, "fresh_until_us": _NUMBER, "drift": _FLAG, "position": _NUMBER}
    ),
}
