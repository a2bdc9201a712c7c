"""Leases, heartbeats and claims in the OpenAPI document."""

from typing import Any, Final

from ingest import shapes_leases as shapes
from ingest.endpoints import Endpoint, with_fields
from sessions.holders import STATES
from sessions.models_leases import KINDS

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_ID: Final = {"type": "string", "format": "uuid"}

ENDPOINTS: Final = (
    Endpoint(
        "post",
        "/leases",
        "acquireLease",
        "Acquire a lease on a session, a task or a named resource.",
        {201: "Lease", 200: "Lease"},
        shapes.AcquireLease,
        tag="leases",
    ),
    Endpoint(
        "get",
        "/leases",
        "listLeases",
        "List leases, the most recently acquired first.",
        {200: "Page"},
        query=("session", "kind", "state", "limit", "after"),
        tag="leases",
    ),
    Endpoint(
        "get", "/leases/{lease}", "getLease", "Return one lease.", {200: "Lease"}, tag="leases"
    ),
    Endpoint(
        "post",
        "/leases/{lease}/renew",
        "renewLease",
        "Extend a lease by its time to live.",
        {200: "Lease"},
        shapes.RenewLease,
        tag="leases",
    ),
    Endpoint(
        "post",
        "/leases/{lease}/release",
        "releaseLease",
        "Release a lease.",
        {200: "Lease"},
        shapes.ReleaseLease,
        tag="leases",
    ),
    Endpoint(
        "post",
        "/beats",
        "postBeats",
        "Send heartbeats for up to 1,000 leases.",
        {200: "BeatsAnswer"},
        shapes.Beats,
        tag="leases",
    ),
    Endpoint(
        "post",
        "/claims",
        "claim",
        "Acquire a lease on the most urgent matching ready task or orphaned session.",
        {200: "Claimed"},
        shapes.Claim,
        tag="leases",
    ),
)

WORDS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("listLeases", "kind"): KINDS,
    ("listLeases", "state"): STATES,
}

_LEASE: Final = with_fields(
    {
        "id": _ID,
        "handle": _TEXT,
        "kind": {"enum": list(KINDS)},
        "subject": _TEXT,
        "session": {"type": ["string", "null"], "format": "uuid"},
        "holder": _TEXT,
        "process": _TEXT,
        "epoch": _NUMBER,
        "ttl_s": _NUMBER,
        "expires_at_us": _NUMBER,
        "beat_at_us": _NUMBER,
        "progress_at_us": _NUMBER,
        "quiet_until_us": {"type": ["integer", "null"]},
        "released_at_us": {"type": ["integer", "null"]},
        "state": {"enum": list(STATES)},
        "takeovers": _NUMBER,
        "version": _NUMBER,
    }
)
_HEARTBEAT: Final = with_fields(
    {
        "lease": _ID,
        "status": {"enum": ["ok", "lost"]},
        "expires_at_us": {"type": ["integer", "null"]},
    }
)
_SUBJECT: Final = with_fields({"kind": {"enum": ["task", "session"]}, "session": _ID}, task=_ID)
ANSWERS: Final[dict[str, Any]] = {
    "Lease": _LEASE,
    "Session": with_fields(
        {
            **dict.fromkeys(("handle", "key", "status"), _TEXT),
            **dict.fromkeys(("version", "resumes"), _NUMBER),
            "id": _ID,
            "lease": {"anyOf": [_LEASE, {"type": "null"}]},
        }
    ),
    "BeatsAnswer": with_fields({"results": {"type": "array", "items": _HEARTBEAT}}),
    "Claimed": with_fields(
        {"claimed": {"anyOf": [_SUBJECT, {"type": "null"}]}}, lease=_LEASE, resume=_TEXT
    ),
}
