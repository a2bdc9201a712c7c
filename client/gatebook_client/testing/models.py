"""Objects of the Gatebook in memory, and the simple cases of its verdicts."""

import uuid
from dataclasses import dataclass, field
from typing import Any

from gatebook_client.effect_keys import compute_call_digest
from gatebook_client.types import Json

US = 1_000_000
FENCED = ("probeable", "transactional")
MAX_ERRORS = 5


class Crash(BaseException):
    """The process died, as by SIGKILL: its further requests do not reach the server."""


@dataclass
class FakeTool:
    """A tool as an operator declares it."""

    tool_class: str = "opaque"
    request_lifetime_s: int = 300
    max_attempts: int = 3
    needs_approval: bool = False  # by people


@dataclass
class FakeAttempt:
    """One attempt."""

    number: int
    remote_key: str
    process: str
    key: str
    at_us: int
    open: bool = True
    probe_result: str = ""
    probed_us: int = 0
    errors: int = 0
    reference: str = ""


@dataclass
class FakeEffect:
    """One effect."""

    id: str
    number: int
    session: str
    effect_key: str
    tool: str
    arguments: Any
    turn: str
    state: str = "planned"
    permission: str = "none"
    outcome: str = ""
    reason: str = ""
    reference: str = ""
    gate: str = ""
    call_id: str = ""
    meta: Json = field(default_factory=dict)
    result: Any = None
    compensates: str = ""
    free_text: list[str] = field(default_factory=list)
    attempts: list[FakeAttempt] = field(default_factory=list)
    begun: int = 0  # when it was planned, in microseconds
    changed: int = 0

    @property
    def intent(self) -> str:
        """The digest of tool and arguments."""
        return compute_call_digest(self.tool, self.arguments, self.free_text)

    @property
    def waits(self) -> bool:
        """Whether it was planned, and has no permission yet."""
        return self.state == "planned" and self.permission == "none"

    @property
    def unknown(self) -> bool:
        """Whether it may have happened."""
        return self.state == "dispatched" or (
            self.state in ("failed", "acknowledged") and self.outcome == "unknown"
        )

    @property
    def rejected(self) -> bool:
        """Whether the last attempt certainly did nothing."""
        return self.state == "failed" and self.reason == "rejected"

    def answer(self, open_effect: str = "") -> str:
        """What the agent may do now."""
        if self.unknown:
            return "ambiguous"
        if self.state in ("acknowledged", "compensated", "superseded"):
            return "done"
        if open_effect:
            return "ambiguous"
        return {"granted": "proceed", "pending": "wait", "none": "wait"}.get(
            self.permission, "blocked"
        )

    def to_json(self) -> Json:
        """Return the effect object of the API."""
        last = self.attempts[-1] if self.attempts else None
        body: Json = {
            "id": self.id,
            "handle": f"e_{self.number}",
            "session": self.session,
            "effect_key": self.effect_key,
            "call_id": self.call_id or None,
            "tool": self.tool,
            "state": self.state,
            "outcome": self.outcome or None,
            "permission": self.permission,
            "intent_digest": self.intent,
            "gate": {
                "id": self.gate,
                "wait": f"/api/v1/gates/{self.gate}?wait=45",
                "page": f"/approvals/{self.gate}/",
            }
            if self.gate
            else None,
            "attempt": last.number if last is not None else None,
            "external_reference": self.reference or None,
            "answer": self.answer(),
        }
        return {name: value for name, value in body.items() if value is not None}


@dataclass
class FakeGate:
    """A request for approval."""

    id: str
    effect: str
    status: str = "pending"
    version: int = 1
    message: str = ""
    decide_by_us: int = 0

    def to_json(self) -> Json:
        """Return the gate object of the API."""
        return {
            "id": self.id,
            "effect": self.effect,
            "page": f"/approvals/{self.id}/",
            "decide_by_us": self.decide_by_us,
            "status": self.status,
            "version": self.version,
            "message": self.message,
            "stopped": False,
            "proceed": self.status == "approved",
        }


@dataclass
class FakeLease:
    """A lease."""

    id: str
    session: str
    process: str
    epoch: int
    ttl_s: int
    expires_us: int
    released: bool = False
    released_us: int | None = None
    progress: str = ""

    def to_json(self) -> Json:
        """Return the lease object of the API."""
        return {
            "id": self.id,
            "kind": "session",
            "session": self.session,
            "process": self.process,
            "epoch": self.epoch,
            "ttl_s": self.ttl_s,
            "expires_at_us": self.expires_us,
            "released_at_us": self.released_us,
            "state": "released" if self.released else "live",
        }


def new_id() -> str:
    """Return a random id like those of a server."""
    return str(uuid.uuid4())


def verdict(row: FakeEffect, tool: FakeTool, now_us: int) -> Json:
    """Return the verdict on an effect: the rows that tests of an agent meet.

    The real table has more rows (`ledger/verdicts/table.py`).
    """
    answer, reason, until_us = _decide(row, tool, now_us)
    last = row.attempts[-1] if row.attempts else None
    return {
        "effect": row.to_json(),
        "verdict": answer,
        "reason": reason,
        "row": "9" if reason == "REJECTED_CLEAN" else "",
        "sentence": f"{row.to_json()['handle']}: {answer} ({reason})",
        "until_us": until_us,
        "attempt": last.number if last is not None else 0,
        "remote_key": last.remote_key if last is not None else "",
        "needs_permission": reason == "REJECTED_CLEAN",
        "as_of_us": now_us,
    }


def _decide(row: FakeEffect, tool: FakeTool, now_us: int) -> tuple[str, str, int | None]:
    if row.state == "planned":
        verdicts = {"granted": ("execute", "NOT_DISPATCHED"), "pending": ("wait", "GATE_PENDING")}
        return *verdicts.get(
            row.permission,
            ("skip", "GATE_DENIED") if row.permission == "denied" else ("ask", "NO_PERMISSION"),
        ), None
    if row.rejected:
        spent = len(row.attempts) >= tool.max_attempts
        return ("skip", "ATTEMPTS_SPENT", None) if spent else ("replay", "REJECTED_CLEAN", None)
    if not row.unknown:
        return "skip", "CLOSED" if row.state in ("superseded", "compensated") else "DONE", None
    last = row.attempts[-1]
    if tool.tool_class in ("read_only", "idempotent", "idempotency_key"):
        replays = {
            "read_only": "HARMLESS",
            "idempotent": "PUT_LATEST",
            "idempotency_key": "KEY_LIVE",
        }
        return "replay", replays[tool.tool_class], None
    if tool.tool_class == "compensable":
        return "compensate", "CANCEL_THEN_REDO", None
    if tool.tool_class not in FENCED:
        return "escalate", "UNDECIDABLE", None
    window_end_us = last.at_us + tool.request_lifetime_s * US
    if last.probe_result == "several":
        return "escalate", "DUPLICATE_FOUND", None
    if last.probe_result == "error":
        again_us = last.probed_us + 15 * US * 2**last.errors
        if last.errors >= MAX_ERRORS:
            return "escalate", "PROBE_FAILED", None
        return (
            ("wait", "PROBE_FAILED", again_us)
            if now_us < again_us
            else ("probe", "PROBED_ABSENT", None)
        )
    if last.probe_result == "miss" and last.probed_us >= window_end_us:
        return "replay", "PROBED_ABSENT", None
    if last.probe_result == "miss" and now_us < window_end_us:
        return "wait", "IN_FLIGHT_WAIT", window_end_us
    return "probe", "PROBED_ABSENT", None
