"""What a worker writes down beside its effects: tasks, decisions, checkpoints, handoffs, messages, facts, capacity.

Each write goes under the lease, and is a sign that the work gets on.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatebook_client.keys import canonical
from gatebook_client.values import Json
from gatebook_client.wire import Answer, Wire

ITEMS_AT_ONCE = 1000


class Working:
    """What a session can write down. Every method raises LedgerAway, Refused, LeaseLost, SessionEnded."""

    id: str
    process: str
    wire: Wire

    def write(self, path: str, body: Json, version: int | None = None) -> Answer:
        """Give one command of working state, under the lease."""
        raise NotImplementedError

    # Tasks and their items. -------------------------------------------------------------------------------------------

    def task(
        self, key: str, title: str = "", *, parent: str = "", priority: int = 0, items: Sequence[str] = ()
    ) -> "Task":
        """The task with that key, made where it is new; `parent` is another's key, `items` are still to be done."""
        body: Json = {"key": key, "title": title or key, "priority": priority}
        if parent:
            body["parent"] = parent
        told = self.write(f"/sessions/{self.id}/tasks", body).body
        task = Task(self, str(told["id"]), key, str(told.get("state") or "pending"))
        if items:
            known = {one["key"] for one in task.items()}
            task.put({item: "pending" for item in items if item not in known})
        return task

    # Decisions. -------------------------------------------------------------------------------------------------------

    def decide(self, key: str, choice: str, **more: Any) -> "Decision":
        """Write down a decision before acting on it; more: rationale, planned_action, alternatives, effect_key."""
        body = {"key": key, "choice": choice} | {name: value for name, value in more.items() if value is not None}
        return Decision(self, self.write(f"/sessions/{self.id}/decisions", body).body)

    def decisions(self, *, open_only: bool = True) -> "list[Decision]":
        """Decisions of this session; those that nobody concluded, unless all are asked for."""
        told = self.wire.get(f"/sessions/{self.id}/decisions", open=1 if open_only else None)
        return [Decision(self, one) for one in told.body.get("items", [])]

    # Checkpoints. -----------------------------------------------------------------------------------------------------

    def checkpoint(self, summary: str = "", *, state: Any = None, cursor: str = "", **more: Any) -> Json:
        """Keep what the next worker reads first; 64 KiB at most, and the book loses nothing when it is lost.

        More: cache_keys (list of texts) and pins (name to version).
        """
        body = {"summary": summary or None, "state": canonical(state), "cursor": cursor or None} | more
        said = {name: value for name, value in body.items() if value is not None}
        return self.write(f"/sessions/{self.id}/checkpoints", said).body

    def checkpoints(self) -> list[Json]:
        """The latest checkpoints, newest first."""
        return list(self.wire.get(f"/sessions/{self.id}/checkpoints").body.get("items", []))

    # Handoffs. --------------------------------------------------------------------------------------------------------

    def handoff(
        self,
        in_progress: Iterable[str] = (),
        decided: Iterable[str] = (),
        needs_attention: Iterable[str] = (),
        can_wait: Iterable[str] = (),
        waits_on: Iterable[Mapping[str, str]] = (),
    ) -> Json:
        """Leave the work to whoever comes next, in five short lists."""
        body: Json = {
            "in_progress": list(in_progress),
            "decided": list(decided),
            "needs_attention": list(needs_attention),
            "can_wait": list(can_wait),
            "waits_on": [dict(one) for one in waits_on],
        }
        return self.write(f"/sessions/{self.id}/handoffs", body).body

    def accept(self, handoff: str) -> Json:
        """Say that a handoff was read and the work is ours."""
        return self.write(f"/handoffs/{handoff}/accept", {}).body

    # Messages, facts, capacity. ---------------------------------------------------------------------------------------

    def inbox(self, *, shared: bool = False) -> "list[Message]":
        """Messages that were not read yet, in their order: this agent's, or those to everybody."""
        found, after = [], ""
        while True:
            told = self.wire.get("/messages", unread=1, box="shared" if shared else "mine", after=after).body
            found += [Message(self.wire, one) for one in told.get("items", [])]
            after = str(told.get("next") or "")
            if not after:
                return found

    def send(self, to: str, body: str, *, subject: str = "", in_reply_to: str = "") -> Json:
        """Send a message to an agent by its name, or to everybody (`shared`)."""
        said: Json = {"to": to, "body": body, "session": self.id}
        said |= {name: value for name, value in (("subject", subject), ("in_reply_to", in_reply_to)) if value}
        return self.write("/messages", said).body

    def fact(self, name: str, value: Any, source: str, *, fresh_s: int | None = None) -> Json:
        """Record what was seen of the world, where, and for how long it may be taken as true."""
        body: Json = {"name": name, "value": value, "source": source}
        return self.write(f"/sessions/{self.id}/facts", body | ({} if fresh_s is None else {"fresh_s": fresh_s})).body

    def capacity(self, **left: int) -> Json:
        """Report context_left_tokens, context_total_tokens, time_left_s, queue. Too little of them slows plans."""
        return self.write("/capacity", {"session": self.id, **left}).body

    def artifact(self, name: str, media_type: str, content: bytes, *, effect: str = "") -> Json:
        """Keep something that was made, by its hash, with its bytes."""
        body: Json = {
            "session": self.id,
            "type": name.rpartition(".")[2] or "file",
            "name": name,
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
            "media_type": media_type,
        }
        recorded = self.write("/artifacts", body | ({"effect": effect} if effect else {})).body
        return self.wire.put(f"/artifacts/{recorded['id']}/bytes", content).body

    def resume(self) -> Json:
        """What a worker that takes over reads first: is it safe, because of what, and what is open."""
        return self.wire.get(f"/sessions/{self.id}/resume", process=self.process).body


@dataclass(frozen=True)
class Task:
    """A task of a session; `state` is as it was when the task was asked for."""

    session: Working
    id: str
    key: str
    state: str = "pending"

    @property
    def finished(self) -> bool:
        """Whether an earlier process had finished it."""
        return self.state in ("done", "cancelled", "failed")

    def start(self) -> None:
        """Work on it from now on."""
        self.change(state="running", worker=self.session.process[:8])

    def change(self, **what: Any) -> None:
        """Change title, state, priority, worker or branch_label."""
        self.session.write(f"/tasks/{self.id}/change", what)

    def item(self, key: str, state: str = "done", detail: str = "") -> None:
        """Say what became of one item: pending, done or failed."""
        entry = {"key": key, "state": state} | ({"detail": detail} if detail else {})
        self.session.write(f"/tasks/{self.id}/items", {"items": [entry]})

    def put(self, states: Mapping[str, str]) -> None:
        """Say what became of many items."""
        entries = [{"key": key, "state": state} for key, state in states.items()]
        for start in range(0, len(entries), ITEMS_AT_ONCE):
            self.session.write(f"/tasks/{self.id}/items", {"items": entries[start : start + ITEMS_AT_ONCE]})

    def items(self, state: str = "") -> list[Json]:
        """Its items, those in `state` only where one is named: exactly what is done and what is still to do."""
        found: list[Json] = []
        after = ""
        while True:
            told = self.session.wire.get(f"/tasks/{self.id}/items", after=after).body
            found += told.get("items", [])
            after = str(told.get("next") or "")
            if not after:
                return [one for one in found if not state or one["state"] == state]

    def done(self) -> None:
        """Say that it is done."""
        self.session.write(f"/tasks/{self.id}/done", {})


class Decision:
    """A decision that was written down; `conclude` it when it was acted on."""

    def __init__(self, session: Working, told: Json) -> None:
        self.session = session
        self.id = str(told["id"])
        self.key = str(told.get("key") or "")
        self.choice = str(told.get("choice") or "")
        self.status = str(told.get("status") or "open")

    def conclude(self, outcome: str, status: str = "done") -> None:
        """Say what came of it: done, failed or abandoned."""
        told = self.session.write(f"/decisions/{self.id}/conclude", {"outcome": outcome, "status": status}).body
        self.status = str(told.get("status") or status)


class Message:
    """A message of an inbox. It is told again until it is marked as read."""

    def __init__(self, wire: Wire, told: Json) -> None:
        self._wire = wire
        self.told = told
        self.id = str(told["id"])
        sender = told.get("from") or {}
        self.sender = str(sender.get("agent") or sender.get("kind") or "")  # an agent's name, or person, or file
        self.subject = str(told.get("subject") or "")
        self.body = str(told.get("body") or "")

    def read(self) -> None:
        """Mark it as read; a second time changes nothing."""
        self._wire.post(f"/messages/{self.id}/read", {})
