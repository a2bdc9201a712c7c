"""The doors of the ledger in memory, one method each."""

import threading
import time
from typing import Any

from gatebook_client.keys import digest_of
from gatebook_client.testing.shelf import Shelf
from gatebook_client.testing.state import US, Declared, Gate, Held, Row, Try, new_id, verdict
from gatebook_client.values import Json

Told = tuple[int, Json]


class Refusal(Exception):
    """An answer that says no."""

    def __init__(self, status: int, code: str, sentence: str = "", **more: Any) -> None:
        super().__init__(code)
        self.status, self.code, self.sentence, self.more = status, code, sentence or f"{code}.", more


class Desk(Shelf):
    """What is stored, and what each request does to it."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self.now_us = time.time_ns() // 1000
        self.tools: dict[str, Declared] = {}
        self.sessions: dict[str, Json] = {}
        self.effects: dict[str, Row] = {}
        self.gates: dict[str, Gate] = {}
        self.leases: dict[str, Held] = {}
        self.answers: dict[str, Told] = {}

    def declare(
        self, tool: str, tool_class: str = "opaque", *, fence_s: int = 300, max_attempts: int = 3, people: bool = False
    ) -> None:
        """Declare a tool, as `tools.yaml` does; with `people`, a policy asks them about it."""
        self.tools[tool] = Declared(tool_class, fence_s, max_attempts, people)

    def rule(self, status: str = "approved", message: str = "") -> None:
        """Answer every open question: approved, denied or returned."""
        with self.lock:
            for gate in self.gates.values():
                if gate.status == "pending":
                    gate.status, gate.version, gate.message = status, gate.version + 1, message
                    row = self.effects[gate.effect]
                    row.leave = {"approved": "granted", "denied": "refused"}.get(status, "held")

    def by_key(self, effect_key: str) -> Row:
        """The effect of that key. Raises StopIteration."""
        return next(row for row in self.effects.values() if row.effect_key == effect_key)

    # Sessions, leases. ------------------------------------------------------------------------------------------------

    def post_sessions(self, *, body: Json, **_more: Any) -> Told:
        """Open a session."""
        for session in self.sessions.values():
            if session["key"] == body["key"]:
                return 200, session
        opened = {"id": new_id(), "handle": f"s_{len(self.sessions) + 1}", "key": body["key"], "status": "running"}
        opened["mode"] = body.get("mode", "one_shot")
        self.sessions[opened["id"]] = opened
        return 201, opened

    def get_sessions_one(self, session: str, **_more: Any) -> Told:
        """Read a session."""
        return 200, self.sessions[session]

    def post_sessions_one_end(self, session: str, *, body: Json, **_more: Any) -> Told:
        """End it."""
        self.sessions[session]["status"] = body["status"]
        return 200, self.sessions[session]

    def get_sessions_one_resume(self, session: str, **_more: Any) -> Told:
        """What a worker that takes over reads first."""
        rows = [
            row for row in self.effects.values() if row.session == session and (row.unknown or row.state == "planned")
        ]
        found = [self._verdict(row) for row in rows]
        because = [one for one in found if one["verdict"] == "escalate" or one["reason"] == "GATE_PENDING"]
        done = [
            row.told() | {"effect": row.id, "changed_us": row.changed, "unheard": self._unheard(row)}
            for row in sorted(self.effects.values(), key=lambda row: row.changed, reverse=True)
            if row.session == session and row.state in ("acknowledged", "compensated") and not row.unknown
        ]
        return 200, {"safe": not because, "because": because, "done": done, "crash_recovery": {"open_effects": found}}

    def _unheard(self, done: Row) -> bool:
        rows = [row for row in self.effects.values() if row.session == done.session and row.state != "superseded"]
        over = {row.intent for row in rows if row.state in ("acknowledged", "compensated") and not row.unknown}
        begun = [row for row in rows if row.tries or (row.leave != "held" and row.intent not in over)]
        return all(row.begun < done.changed for row in begun)

    def get_leases(self, *, asked: dict[str, str], **_more: Any) -> Told:
        """List them."""
        held = self.leases.get(asked["session"])
        return 200, {"items": [] if held is None else [held.told()], "next": None}

    def post_leases(self, *, body: Json, **_more: Any) -> Told:
        """Take a lease."""
        held = self.leases.get(body["session"])
        if held is not None and not held.released and held.expires_us > self.now_us:
            if held.process == body["process"]:
                return 200, held.told()
            if not body.get("takeover"):
                raise Refusal(409, "LEASE_HELD", lease=held.told())
        epoch, ttl_s = (held.epoch if held is not None else 0) + 1, body.get("ttl_s", 60)
        new = Held(new_id(), body["session"], body["process"], epoch, ttl_s, self.now_us + ttl_s * US)
        new.id = held.id if held is not None else new.id
        self.leases[body["session"]] = new
        return 201, new.told()

    def _held(self, lease: str, epoch: int) -> Held:
        held = next(one for one in self.leases.values() if one.id == lease)
        if held.epoch != epoch or held.released:
            raise Refusal(409, "LEASE_LOST", lease=held.told())
        held.expires_us = self.now_us + held.ttl_s * US
        return held

    def post_leases_one_renew(self, lease: str, *, body: Json, **_more: Any) -> Told:
        """Renew it."""
        return 200, self._held(lease, body["epoch"]).told()

    def post_leases_one_release(self, lease: str, *, body: Json, **_more: Any) -> Told:
        """Give it back."""
        held = self._held(lease, body["epoch"])
        held.released, held.released_us = True, self.now_us
        return 200, held.told()

    def post_beats(self, *, body: Json, **_more: Any) -> Told:
        """Keep many."""
        results = []
        for beat in body["beats"]:
            try:
                held = self._held(beat["lease"], beat["epoch"])
                held.progress = beat.get("progress", held.progress)
                results.append({"lease": beat["lease"], "status": "ok", "expires_at_us": held.expires_us})
            except Refusal:
                results.append({"lease": beat["lease"], "status": "lost"})
        return 200, {"results": results}

    def _fenced(self, session: str, body: Json) -> bool:
        held = self.leases.get(session)
        return held is not None and body.get("lease_epoch") != held.epoch

    def get_tools(self, *, asked: dict[str, str], **_more: Any) -> Told:
        """What is declared of a tool."""
        found = self.tools.get(asked["name"])
        means = found or Declared()
        told = {"name": asked["name"], "declared": found is not None, "class": means.tool_class}
        return 200, told | {"request_lifetime_s": means.fence_s}

    # Effects. ---------------------------------------------------------------------------------------------------------

    def post_effects(self, *, body: Json, compensates: str = "", **_more: Any) -> Told:
        """Plan."""
        session = body["session"]
        if self._fenced(session, body):
            raise Refusal(409, "LEASE_LOST")
        digest = digest_of(body["tool"], body["arguments"], body.get("free_text", ()))
        key = body.get("effect_key") or f"{body['call_id']}:{digest[:16]}:{body.get('ordinal', 0)}"
        rows = [row for row in self.effects.values() if row.session == session]
        own = next((row for row in rows if row.effect_key == key), None)
        status = 200 if own is not None else 201
        if own is None:
            own = Row(
                new_id(), len(self.effects) + 1, session, key, body["tool"], body["arguments"], body.get("turn", "")
            )
            own.compensates, own.free_text, own.begun = compensates, body.get("free_text", []), self.now_us
            self.effects[own.id] = own
        elif own.intent != digest:
            raise Refusal(422, "key_reuse", effect=own.told())
        others = [row for row in rows if row is not own and self._same_and_open(row, own, digest)]
        other = min(others, key=lambda row: (not row.unknown, row.waits, row.number)).id if others else ""
        fresh = (own.state == "planned" and own.leave == "held") or (own.rejected and own.leave == "used")
        if fresh and not other and len(own.tries) < self._tool(own).max_attempts:
            self._ask(own)
        return status, own.told() | {"answer": own.answer(other)} | ({"open_effect": other} if other else {})

    def _same_and_open(self, row: Row, own: Row, digest: str) -> bool:
        siblings = bool(own.turn) and row.turn == own.turn
        is_open = row.unknown or (row.state == "planned" and not (row.waits and own.number < row.number))
        is_open = is_open or (row.rejected and row.leave in ("granted", "pending"))
        return is_open and not siblings and row.intent == digest

    def _tool(self, row: Row) -> Declared:
        return self.tools.get(row.tool, Declared())

    def _ask(self, row: Row) -> None:
        row.leave = "pending" if self._tool(row).people else "granted"
        if row.leave == "pending":
            gate = Gate(new_id(), row.id)
            self.gates[gate.id], row.gate = gate, gate.id

    def post_effects_one_compensate(self, effect: str, *, body: Json, **_more: Any) -> Told:
        """Plan the undoing."""
        undone = self.effects[effect]
        return self.post_effects(body=body | {"session": undone.session}, compensates=effect)

    def post_effects_one_dispatch(self, effect: str, *, body: Json, key: str, **_more: Any) -> Told:
        """Use the leave."""
        row = self.effects[effect]
        if self._fenced(row.session, body):
            raise Refusal(409, "LEASE_LOST")
        last = row.tries[-1] if row.tries else None
        if last is not None and last.open and (last.key, last.process) == (key, body["process"]):
            return 200, self._granted(row)
        now = self._verdict(row)
        replays = row.unknown and body.get("replays") == (last.number if last is not None else 0)
        if row.unknown and not (replays and now["verdict"] == "replay"):
            raise Refusal(409, "ALREADY_DISPATCHED", effect=row.told(), verdict=now)
        if not row.unknown and row.leave != "granted":
            code = {"pending": "GATE_PENDING", "refused": "GATE_DENIED"}.get(row.leave, "NO_LEAVE")
            raise Refusal(409, code, effect=row.told(), verdict=now)
        same = replays and last is not None
        remote_key = last.remote_key if same and last is not None else f"{row.id[:8]}-{len(row.tries) + 1}"
        if last is not None:
            last.open = False
        row.tries.append(Try(len(row.tries) + 1, remote_key, body["process"], key, self.now_us))
        row.state, row.outcome, row.reason, row.leave = "dispatched", "", "", "used"
        if row.gate:
            self.gates[row.gate].status = "used"
        return 200, self._granted(row)

    def _granted(self, row: Row) -> Json:
        last, lifetime_s = row.tries[-1], self._tool(row).fence_s
        return row.told() | {
            "attempt": last.number, "remote_key": last.remote_key, "request_lifetime_s": lifetime_s
        }  # fmt: skip

    def _end(self, effect: str, body: Json, state: str, outcome: str, reason: str = "") -> Told:
        row = self.effects[effect]
        attempt = row.tries[body["attempt"] - 1]
        if not attempt.open or self._fenced(row.session, body):
            return 202, row.told()
        attempt.open = False
        row.state, row.outcome, row.reason = state, outcome, reason
        row.reference, row.changed = body.get("external_reference", row.reference), self.now_us
        if row.compensates and outcome == "ok":
            self.effects[row.compensates].state = "compensated"
        return 200, row.told()

    def post_effects_one_acknowledge(self, effect: str, *, body: Json, **_more: Any) -> Told:
        """It happened."""
        return self._end(effect, body, "acknowledged", body["outcome"])

    def post_effects_one_fail(self, effect: str, *, body: Json, **_more: Any) -> Told:
        """It failed."""
        outcome = "error" if body["reason"] == "rejected" else "unknown"
        return self._end(effect, body, "failed", outcome, body["reason"])

    def post_effects_one_supersede(self, effect: str, **_more: Any) -> Told:
        """Withdraw."""
        self.effects[effect].state = "superseded"
        return 200, self.effects[effect].told()

    def post_effects_one_probe(self, effect: str, *, body: Json, **_more: Any) -> Told:
        """Somebody looked."""
        row = self.effects[effect]
        last = row.tries[body["attempt"] - 1]
        last.found, last.looked_us = body["found"], body.get("began_us", 0)
        last.errors = last.errors + 1 if last.found == "error" else 0
        if last.found == "hit":
            last.open = False
            row.state, row.outcome, row.reference = "acknowledged", "ok", body.get("external_reference", "")
            row.changed = self.now_us
        return 200, self._verdict(row)

    def _verdict(self, row: Row) -> Json:
        return verdict(row, self._tool(row), self.now_us)

    def get_effects_one_verdict(self, effect: str, **_more: Any) -> Told:
        """What may be done now."""
        return 200, self._verdict(self.effects[effect])

    def get_effects_one(self, effect: str, **_more: Any) -> Told:
        """Read one."""
        return 200, self.effects[effect].told()

    def get_effects_one_plan(self, effect: str, **_more: Any) -> Told:
        """What was planned."""
        row = self.effects[effect]
        return 200, {"tool": row.tool, "arguments": row.arguments, "free_text": row.free_text}

    def get_effects(self, *, asked: dict[str, str], **_more: Any) -> Told:
        """List them, newest first."""
        names = ("session", "state", "outcome", "effect_key", "tool")

        def fits(row: Row) -> bool:
            return all(getattr(row, name) == asked[name] for name in names if name in asked)

        found = [row.told() for row in reversed(self.effects.values()) if fits(row)]
        return 200, {"items": found[: int(asked.get("limit", 50))], "next": None}

    def get_gates_one(self, gate: str, **_more: Any) -> Told:
        """Read a gate."""
        return 200, self.gates[gate].told()
