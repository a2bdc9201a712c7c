"""Endpoints of the Gatebook in memory, one method each."""

import threading
import time
from typing import Any

from gatebook_client.effect_keys import compute_call_digest
from gatebook_client.testing.models import (
    US,
    FakeAttempt,
    FakeEffect,
    FakeGate,
    FakeLease,
    FakeTool,
    new_id,
    verdict,
)
from gatebook_client.testing.working_state import FakeWorkingState
from gatebook_client.types import Json

StatusAndBody = tuple[int, Json]
DECIDE_S = 86_400  # until an unanswered request expires


class Refusal(Exception):
    """A refusal, with its HTTP status and code."""

    def __init__(self, status: int, code: str, sentence: str = "", **more: Any) -> None:
        super().__init__(code)
        self.status, self.code, self.sentence, self.more = (
            status,
            code,
            sentence or f"{code}.",
            more,
        )


class FakeEndpoints(FakeWorkingState):
    """The stored objects, and the effect of each request on them."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self.now_us = time.time_ns() // 1000
        self.tools: dict[str, FakeTool] = {}
        self.sessions: dict[str, Json] = {}
        self.effects: dict[str, FakeEffect] = {}
        self.gates: dict[str, FakeGate] = {}
        self.leases: dict[str, FakeLease] = {}
        self.answers: dict[str, StatusAndBody] = {}
        self.facts: list[Json] = []  # what was reported after the event

    def declare_tool(
        self,
        tool: str,
        tool_class: str = "opaque",
        *,
        request_lifetime_s: int = 300,
        max_attempts: int = 3,
        needs_approval: bool = False,
    ) -> None:
        """Declare a tool, as `tools.yaml` does; `needs_approval` opens a gate for its plans."""
        self.tools[tool] = FakeTool(tool_class, request_lifetime_s, max_attempts, needs_approval)

    def answer_gates(self, status: str = "approved", message: str = "") -> None:
        """Answer every pending gate: approved, denied or changes_requested."""
        with self.lock:
            for gate in self.gates.values():
                if gate.status == "pending":
                    gate.status, gate.version, gate.message = status, gate.version + 1, message
                    row = self.effects[gate.effect]
                    row.permission = {"approved": "granted", "denied": "denied"}.get(status, "none")

    def by_key(self, effect_key: str) -> FakeEffect:
        """Return the effect with that key. Raises StopIteration."""
        return next(row for row in self.effects.values() if row.effect_key == effect_key)

    # Sessions, leases.

    def post_sessions(self, *, body: Json, **_more: Any) -> StatusAndBody:
        """Open a session."""
        for session in self.sessions.values():
            if session["key"] == body["key"]:
                session["meta"] |= body.get("meta", {})
                return 200, session
        opened = {
            "id": new_id(),
            "handle": f"s_{len(self.sessions) + 1}",
            "key": body["key"],
            "status": "running",
        }
        opened["mode"], opened["meta"] = body.get("mode", "one_shot"), body.get("meta", {})
        self.sessions[opened["id"]] = opened
        return 201, opened

    def get_sessions_one(self, session: str, **_more: Any) -> StatusAndBody:
        """Read a session."""
        stored = self.sessions.get(session) or next(
            (row for row in self.sessions.values() if row["key"] == session), None
        )
        if stored is None:
            raise Refusal(404, "not_found")
        return 200, stored

    def post_sessions_one_end(self, session: str, *, body: Json, **_more: Any) -> StatusAndBody:
        """End a session."""
        self.sessions[session]["status"] = body["status"]
        return 200, self.sessions[session]

    def get_sessions_one_resume(self, session: str, **_more: Any) -> StatusAndBody:
        """Return what a new worker reads first."""
        rows = [
            row
            for row in self.effects.values()
            if row.session == session and (row.unknown or row.state == "planned")
        ]
        verdicts = [self._verdict(row) for row in rows]
        because = [
            item
            for item in verdicts
            if item["verdict"] == "escalate" or item["reason"] == "GATE_PENDING"
        ]
        done = [
            row.to_json()
            | {"effect": row.id, "changed_us": row.changed, "unheard": self._unanswered(row)}
            for row in sorted(self.effects.values(), key=lambda row: row.changed, reverse=True)
            if row.session == session
            and row.state in ("acknowledged", "compensated")
            and not row.unknown
        ]
        return 200, {
            "safe": not because,
            "because": because,
            "done": done,
            "crash_recovery": {"open_effects": verdicts},
        }

    def _unanswered(self, done: FakeEffect) -> bool:
        rows = [
            row
            for row in self.effects.values()
            if row.session == done.session and row.state != "superseded"
        ]
        over = {
            row.intent
            for row in rows
            if row.state in ("acknowledged", "compensated") and not row.unknown
        }
        begun = [
            row
            for row in rows
            if row.attempts or (row.permission != "none" and row.intent not in over)
        ]
        return all(row.begun < done.changed for row in begun)

    def get_leases(self, *, params: dict[str, str], **_more: Any) -> StatusAndBody:
        """List leases."""
        lease = self.leases.get(params["session"])
        return 200, {"items": [] if lease is None else [lease.to_json()], "next": None}

    def post_leases(self, *, body: Json, **_more: Any) -> StatusAndBody:
        """Acquire a lease."""
        current = self.leases.get(body["session"])
        if current is not None and not current.released and current.expires_us > self.now_us:
            if current.process == body["process"]:
                return 200, current.to_json()
            if not body.get("takeover"):
                raise Refusal(409, "LEASE_HELD", lease=current.to_json())
        epoch, ttl_s = (current.epoch if current is not None else 0) + 1, body.get("ttl_s", 60)
        new = FakeLease(
            new_id(), body["session"], body["process"], epoch, ttl_s, self.now_us + ttl_s * US
        )
        new.id = current.id if current is not None else new.id
        self.leases[body["session"]] = new
        return 201, new.to_json()

    def _renew_lease(self, lease: str, epoch: int) -> FakeLease:
        current = next(item for item in self.leases.values() if item.id == lease)
        if current.epoch != epoch or current.released:
            raise Refusal(409, "LEASE_LOST", lease=current.to_json())
        current.expires_us = self.now_us + current.ttl_s * US
        return current

    def post_leases_one_renew(self, lease: str, *, body: Json, **_more: Any) -> StatusAndBody:
        """Renew a lease."""
        return 200, self._renew_lease(lease, body["epoch"]).to_json()

    def post_leases_one_release(self, lease: str, *, body: Json, **_more: Any) -> StatusAndBody:
        """Release a lease."""
        renewed = self._renew_lease(lease, body["epoch"])
        renewed.released, renewed.released_us = True, self.now_us
        return 200, renewed.to_json()

    def post_heartbeats(self, *, body: Json, **_more: Any) -> StatusAndBody:
        """Renew many leases."""
        results = []
        for heartbeat in body["heartbeats"]:
            try:
                renewed = self._renew_lease(heartbeat["lease"], heartbeat["epoch"])
                renewed.progress = heartbeat.get("progress", renewed.progress)
                results.append(
                    {
                        "lease": heartbeat["lease"],
                        "status": "ok",
                        "expires_at_us": renewed.expires_us,
                    }
                )
            except Refusal:
                results.append({"lease": heartbeat["lease"], "status": "lost"})
        return 200, {"results": results}

    def _has_stale_epoch(self, session: str, body: Json) -> bool:
        current = self.leases.get(session)
        return current is not None and body.get("lease_epoch") != current.epoch

    def get_tools(self, *, params: dict[str, str], **_more: Any) -> StatusAndBody:
        """Return the declaration of a tool."""
        declared = self.tools.get(params["name"])
        tool = declared or FakeTool()
        answer = {
            "name": params["name"],
            "declared": declared is not None,
            "class": tool.tool_class,
        }
        return 200, answer | {"request_lifetime_s": tool.request_lifetime_s}

    # Effects.

    def post_effects(self, *, body: Json, compensates: str = "", **_more: Any) -> StatusAndBody:
        """Plan an effect."""
        session = body["session"]
        if self._has_stale_epoch(session, body):
            raise Refusal(409, "LEASE_LOST")
        digest = compute_call_digest(body["tool"], body["arguments"], body.get("free_text", ()))
        key = body.get("effect_key") or f"{body['call_id']}:{digest[:16]}:{body.get('ordinal', 0)}"
        rows = [row for row in self.effects.values() if row.session == session]
        own = next((row for row in rows if row.effect_key == key), None)
        status = 200 if own is not None else 201
        if own is None:
            own = FakeEffect(
                new_id(),
                len(self.effects) + 1,
                session,
                key,
                body["tool"],
                body["arguments"],
                body.get("turn", ""),
            )
            own.compensates, own.free_text, own.begun = (
                compensates,
                body.get("free_text", []),
                self.now_us,
            )
            own.call_id = body.get("call_id", "")
            self.effects[own.id] = own
        elif own.intent != digest:
            raise Refusal(422, "key_reuse", effect=own.to_json())
        own.meta |= body.get("meta", {})
        others = [row for row in rows if row is not own and self._same_and_open(row, own, digest)]
        other = (
            min(others, key=lambda row: (not row.unknown, row.waits, row.number)).id
            if others
            else ""
        )
        fresh = (own.state == "planned" and own.permission == "none") or (
            own.rejected and own.permission == "used"
        )
        if fresh and not other and len(own.attempts) < self._tool(own).max_attempts:
            self._ask(own)
        return status, own.to_json() | {"answer": own.answer(other)} | (
            {"open_effect": other} if other else {}
        )

    def _same_and_open(self, row: FakeEffect, own: FakeEffect, digest: str) -> bool:
        siblings = bool(own.turn) and row.turn == own.turn
        is_open = row.unknown or (
            row.state == "planned" and not (row.waits and own.number < row.number)
        )
        is_open = is_open or (row.rejected and row.permission in ("granted", "pending"))
        return is_open and not siblings and row.intent == digest

    def _tool(self, row: FakeEffect) -> FakeTool:
        return self.tools.get(row.tool, FakeTool())

    def _ask(self, row: FakeEffect) -> None:
        row.permission = "pending" if self._tool(row).needs_approval else "granted"
        if row.permission == "pending":
            gate = FakeGate(new_id(), row.id, decide_by_us=self.now_us + DECIDE_S * US)
            self.gates[gate.id], row.gate = gate, gate.id

    def post_effects_one_compensate(
        self, effect: str, *, body: Json, **_more: Any
    ) -> StatusAndBody:
        """Plan a compensation."""
        undone = self.effects[effect]
        return self.post_effects(body=body | {"session": undone.session}, compensates=effect)

    def post_effects_one_dispatch(
        self, effect: str, *, body: Json, key: str, **_more: Any
    ) -> StatusAndBody:
        """Use the permission."""
        row = self.effects[effect]
        if self._has_stale_epoch(row.session, body):
            raise Refusal(409, "LEASE_LOST")
        last = row.attempts[-1] if row.attempts else None
        if last is not None and last.open and (last.key, last.process) == (key, body["process"]):
            return 200, self._granted(row)
        now = self._verdict(row)
        replays = row.unknown and body.get("replays") == (last.number if last is not None else 0)
        if row.unknown and not (replays and now["verdict"] == "replay"):
            raise Refusal(409, "ALREADY_DISPATCHED", effect=row.to_json(), verdict=now)
        if not row.unknown and row.permission != "granted":
            code = {"pending": "GATE_PENDING", "denied": "GATE_DENIED"}.get(
                row.permission, "NO_PERMISSION"
            )
            raise Refusal(409, code, effect=row.to_json(), verdict=now)
        same = replays and last is not None
        remote_key = (
            last.remote_key
            if same and last is not None
            else f"{row.id[:8]}-{len(row.attempts) + 1}"
        )
        if last is not None:
            last.open = False
        row.attempts.append(
            FakeAttempt(len(row.attempts) + 1, remote_key, body["process"], key, self.now_us)
        )
        row.state, row.outcome, row.reason, row.permission = "dispatched", "", "", "used"
        if row.gate:
            self.gates[row.gate].status = "used"
        return 200, self._granted(row)

    def _granted(self, row: FakeEffect) -> Json:
        last, lifetime_s = row.attempts[-1], self._tool(row).request_lifetime_s
        return row.to_json() | {
            "attempt": last.number,
            "remote_key": last.remote_key,
            "request_lifetime_s": lifetime_s,
        }

    def _end(
        self, effect: str, body: Json, state: str, outcome: str, reason: str = ""
    ) -> StatusAndBody:
        row = self.effects[effect]
        attempt = row.attempts[body["attempt"] - 1]
        if not attempt.open or self._has_stale_epoch(row.session, body):
            return 202, row.to_json()
        attempt.open = False
        row.state, row.outcome, row.reason = state, outcome, reason
        row.result = body.get("result")
        row.reference, row.changed = body.get("external_reference", row.reference), self.now_us
        if row.compensates and outcome == "ok":
            self.effects[row.compensates].state = "compensated"
        return 200, row.to_json()

    def post_effects_one_acknowledge(
        self, effect: str, *, body: Json, **_more: Any
    ) -> StatusAndBody:
        """Record that an attempt happened."""
        return self._end(effect, body, "acknowledged", body["outcome"])

    def post_effects_one_fail(self, effect: str, *, body: Json, **_more: Any) -> StatusAndBody:
        """Record that an attempt failed."""
        outcome = "error" if body["reason"] == "rejected" else "unknown"
        return self._end(effect, body, "failed", outcome, body["reason"])

    def post_effects_one_supersede(self, effect: str, **_more: Any) -> StatusAndBody:
        """Supersede an effect."""
        self.effects[effect].state = "superseded"
        return 200, self.effects[effect].to_json()

    def post_effects_one_probe(self, effect: str, *, body: Json, **_more: Any) -> StatusAndBody:
        """Record the result of a probe."""
        row = self.effects[effect]
        last = row.attempts[body["attempt"] - 1]
        last.probe_result, last.probed_us = body["result"], body.get("began_us", 0)
        last.errors = last.errors + 1 if last.probe_result == "error" else 0
        if last.probe_result == "hit":
            last.open = False
            row.state, row.outcome, row.reference = (
                "acknowledged",
                "ok",
                body.get("external_reference", ""),
            )
            row.changed = self.now_us
        return 200, self._verdict(row)

    def _verdict(self, row: FakeEffect) -> Json:
        return verdict(row, self._tool(row), self.now_us)

    def get_effects_one_verdict(self, effect: str, **_more: Any) -> StatusAndBody:
        """Return what may be done now."""
        return 200, self._verdict(self.effects[effect])

    def get_effects_one(self, effect: str, **_more: Any) -> StatusAndBody:
        """Return an effect."""
        return 200, self.effects[effect].to_json() | {"meta": self.effects[effect].meta}

    def get_effects_one_plan(self, effect: str, **_more: Any) -> StatusAndBody:
        """Return the plan of an effect."""
        row = self.effects[effect]
        return 200, {"tool": row.tool, "arguments": row.arguments, "free_text": row.free_text}

    def get_effects_one_result(self, effect: str, **_more: Any) -> StatusAndBody:
        """Return the stored result of an effect."""
        row = self.effects[effect]
        if not row.outcome:
            raise Refusal(409, "NO_RESULT")
        stored = {} if row.result is None else {"result": row.result}
        return 200, row.to_json() | stored | {
            "effect": row.id,
            "stored": "result" if stored else "none",
            "redacted": False,
        }

    def post_events(self, *, body: Any, **_more: Any) -> StatusAndBody:
        """Record facts after the event; they change nothing here."""
        self.facts += body
        results = [
            {"index": index, "id": item["id"], "status": "created"}
            for index, item in enumerate(body)
        ]
        return 200, {"accepted": len(body), "results": results}

    def get_effects(self, *, params: dict[str, str], **_more: Any) -> StatusAndBody:
        """List effects, newest first."""
        names = ("session", "state", "outcome", "effect_key", "call_id", "tool")

        def fits(row: FakeEffect) -> bool:
            return all(getattr(row, name) == params[name] for name in names if name in params)

        items = [row.to_json() for row in reversed(self.effects.values()) if fits(row)]
        return 200, {"items": items[: int(params.get("limit", 50))], "next": None}

    def get_gates_one(self, gate: str, **_more: Any) -> StatusAndBody:
        """Return a gate."""
        return 200, self.gates[gate].to_json()
