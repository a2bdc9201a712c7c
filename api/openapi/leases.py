"""Leases, heartbeats and claims in the OpenAPI document."""

from typing import Any, Final

from api.openapi.operation import Endpoint, build_object_schema
from api.schemas import leases as shapes
from sessions.lease_queries import LEASE_STATES
from sessions.models import LEASE_KINDS

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
        "/heartbeats",
        "postBeats",
        "Send heartbeats for up to 1,000 leases.",
        {200: "BeatsAnswer"},
        shapes.Heartbeats,
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

LEASE_ENUMS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("listLeases", "kind"): LEASE_KINDS,
    ("listLeases", "state"): LEASE_STATES,
}

_LEASE: Final = build_object_schema(
    {
        "id": _ID,
        "handle": _TEXT,
        "kind": {"enum": list(LEASE_KINDS)},
        "subject": _TEXT,
        "session": {"type": ["string", "null"], "format": "uuid"},
        "holder": _TEXT,
        "process": _TEXT,
        "epoch": _NUMBER,
        "ttl_s": _NUMBER,
        "expires_at_us": _NUMBER,
        "heartbeat_at_us": _NUMBER,
        "progress_at_us": _NUMBER,
        "quiet_until_us": {"type": ["integer", "null"]},
        "released_at_us": {"type": ["integer", "null"]},
        "state": {"enum": list(LEASE_STATES)},
        "takeovers": _NUMBER,
        "version": _NUMBER,
    }
)
_HEARTBEAT: Final = build_object_schema(
    {
        "lease": _ID,
        "status": {"enum": ["ok", "lost"]},
        "expires_at_us": {"type": ["integer", "null"]},
    }
)
_SUBJECT: Final = build_object_schema(
    {"kind": {"enum": ["task", "session"]}, "session": _ID}, task=_ID
)
ANSWERS: Final[dict[str, Any]] = {
    "Lease": _LEASE,
    "Session": build_object_schema(
        {
            **dict.fromkeys(("handle", "key", "status"), _TEXT),
            **dict.fromkeys(("version", "resumes"), _NUMBER),
            "id": _ID,
            "lease": {"anyOf": [_LEASE, {"type": "null"}]},
        }
    ),
    "BeatsAnswer": build_object_schema({"results": {"type": "array", "items": _HEARTBEAT}}),
    "Claimed": build_object_schema(
        {"claimed": {"anyOf": [_SUBJECT, {"type": "null"}]}}, lease=_LEASE, resume=_TEXT
    ),
}
