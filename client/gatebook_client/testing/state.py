"""What the ledger in memory knows, and the simple cases of its verdicts."""

import uuid
from dataclasses import dataclass, field
from typing import Any

from gatebook_client.keys import digest_of
from gatebook_client.values import Json

US = 1_000_000
FENCED = ("probeable", "joint")
MAX_ERRORS = 5


class Crash(BaseException):
    """The process died here, as by SIGKILL: nothing of it reaches the ledger any more."""


@dataclass
class Declared:
    """A tool, as an operator would declare it."""

    tool_class: str = "opaque"
    fence_s: int = 300
    max_attempts: int = 3
    people: bool = False  # they decide


@dataclass
class Try:
    """One attempt."""

    number: int
    remote_key: str
    process: str
    key: str
    at_us: int
    open: bool = True
    found: str = ""
    looked_us: int = 0
    errors: int = 0
    reference: str = ""


@dataclass
class Row:
    """One effect."""

    id: str
    number: int
    session: str
    effect_key: str
    tool: str
    arguments: Any
    turn: str
    state: str = "planned"
    leave: str = "held"
    outcome: str = ""
    reason: str = ""
    reference: str = ""
    gate: str = ""
    compensates: str = ""
    free_text: list[str] = field(default_factory=list)
    tries: list[Try] = field(default_factory=list)
    begun: int = 0  # when it was planned, and last heard of
    changed: int = 0

    @property
    def intent(self) -> str:
        """What it means to do."""
        return digest_of(self.tool, self.arguments, self.free_text)

    @property
    def waits(self) -> bool:
        """Whether it was planned, and no more."""
        return self.state == "planned" and self.leave == "held"

    @property
    def unknown(self) -> bool:
        """Whether it may have happened."""
        return self.state == "dispatched" or (self.state in ("failed", "acknowledged") and self.outcome == "unknown")

    @property
    def rejected(self) -> bool:
        """Whether the last attempt surely did nothing."""
        return self.state == "failed" and self.reason == "rejected"

    def answer(self, open_effect: str = "") -> str:
        """What the agent may do now."""
        if self.unknown:
            return "ambiguous"
        if self.state in ("acknowledged", "compensated", "superseded"):
            return "done"
        if open_effect:
            return "ambiguous"
        return {"granted": "proceed", "pending": "wait", "held": "wait"}.get(self.leave, "blocked")

    def told(self) -> Json:
        """The object of an answer."""
        last = self.tries[-1] if self.tries else None
        body: Json = {
            "id": self.id,
            "handle": f"e_{self.number}",
            "session": self.session,
            "effect_key": self.effect_key,
            "tool": self.tool,
            "state": self.state,
            "outcome": self.outcome or None,
            "leave": self.leave,
            "intent_digest": self.intent,
            "gate": {"id": self.gate, "wait": f"/api/v1/gates/{self.gate}?wait=45"} if self.gate else None,
            "attempt": last.number if last is not None else None,
            "external_reference": self.reference or None,
            "answer": self.answer(),
        }
        return {name: value for name, value in body.items() if value is not None}


@dataclass
class Gate:
    """A question to people."""

    id: str
    effect: str
    status: str = "pending"
    version: int = 1
    message: str = ""

    def told(self) -> Json:
        """The object of an answer."""
        return {
            "id": self.id,
            "effect": self.effect,
            "status": self.status,
            "version": self.version,
            "message": self.message,
            "held": False,
            "proceed": self.status == "approved",
        }


@dataclass
class Held:
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

    def told(self) -> Json:
        """The object of an answer."""
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
    """An id like those of a server."""
    return str(uuid.uuid4())


def verdict(row: Row, tool: Declared, now_us: int) -> Json:
    """The rows of the table that tests of an agent meet; the real one has more (`ledger/verdicts.py`)."""
    answer, reason, until_us = _decide(row, tool, now_us)
    last = row.tries[-1] if row.tries else None
    return {
        "effect": row.told(),
        "verdict": answer,
        "reason": reason,
        "row": "9" if reason == "REJECTED_CLEAN" else "",
        "sentence": f"{row.told()['handle']}: {answer} ({reason})",
        "until_us": until_us,
        "attempt": last.number if last is not None else 0,
        "remote_key": last.remote_key if last is not None else "",
        "needs_leave": reason == "REJECTED_CLEAN",
        "as_of_us": now_us,
    }


def _decide(row: Row, tool: Declared, now_us: int) -> tuple[str, str, int | None]:
    if row.state == "planned":
        leaves = {"granted": ("execute", "NOT_DISPATCHED"), "pending": ("wait", "GATE_PENDING")}
        return *leaves.get(row.leave, ("skip", "GATE_DENIED") if row.leave == "refused" else ("ask", "NO_LEAVE")), None
    if row.rejected:
        spent = len(row.tries) >= tool.max_attempts
        return ("skip", "ATTEMPTS_SPENT", None) if spent else ("replay", "REJECTED_CLEAN", None)
    if not row.unknown:
        return "skip", "CLOSED" if row.state in ("superseded", "compensated") else "DONE", None
    last = row.tries[-1]
    if tool.tool_class in ("read_only", "natural", "keyed"):
        replays = {"read_only": "HARMLESS", "natural": "PUT_LATEST", "keyed": "KEY_LIVE"}
        return "replay", replays[tool.tool_class], None
    if tool.tool_class == "compensable":
        return "compensate", "CANCEL_THEN_REDO", None
    if tool.tool_class not in FENCED:
        return "escalate", "UNDECIDABLE", None
    fence_us = last.at_us + tool.fence_s * US
    if last.found == "several":
        return "escalate", "DUPLICATE_FOUND", None
    if last.found == "error":
        again_us = last.looked_us + 15 * US * 2**last.errors
        if last.errors >= MAX_ERRORS:
            return "escalate", "PROBE_FAILED", None
        return ("wait", "PROBE_FAILED", again_us) if now_us < again_us else ("probe", "PROBED_ABSENT", None)
    if last.found == "miss" and last.looked_us >= fence_us:
        return "replay", "PROBED_ABSENT", None
    if last.found == "miss" and now_us < fence_us:
        return "wait", "FENCE_WAIT", fence_us
    return "probe", "PROBED_ABSENT", None
