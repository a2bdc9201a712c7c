"""Working state in the ledger in memory: kept as it was sent, and told again."""

from typing import Any

from gatebook_client.testing.state import new_id
from gatebook_client.values import Json

Told = tuple[int, Json]
ME = "tester"


class Shelf:
    """Tasks, decisions, checkpoints, handoffs, messages and the like. `written` holds what was sent: path and body."""

    def __init__(self) -> None:
        self.written: list[tuple[str, Json]] = []
        self.kept: dict[str, Json] = {}
        self.items: dict[str, dict[str, Json]] = {}  # by task and key

    def _keep(self, kind: str, session: str, body: Json, **more: Any) -> Told:
        self.written.append((f"sessions_{session}_{kind}" if session else kind, body))
        known = [one for one in self._of(kind, session) if body.get("key") and one.get("key") == body["key"]]
        if known:
            return 200, known[0]
        new: Json = {"id": new_id(), "kind": kind, "of": session, "version": 1} | more | body
        self.kept[new["id"]] = new
        return 201, new

    def _of(self, kind: str, session: str) -> list[Json]:
        return [one for one in self.kept.values() if (one["kind"], one["of"]) == (kind, session)]

    def _change(self, path: str, subject: str, body: Json, **more: Any) -> Told:
        self.written.append((path.replace("one", subject), body))
        self.kept[subject] |= body | more
        return 200, self.kept[subject]

    # Tasks. -----------------------------------------------------------------------------------------------------------

    def post_sessions_one_tasks(self, session: str, *, body: Json, **_more: Any) -> Told:
        """Make a task."""
        return self._keep("tasks", session, body, state="pending")

    def get_sessions_one_tasks(self, session: str, **_more: Any) -> Told:
        """List them."""
        return 200, {"items": self._of("tasks", session), "next": None}

    def post_tasks_one_change(self, task: str, *, body: Json, **_more: Any) -> Told:
        """Change one."""
        return self._change("tasks_one_change", task, body)

    def post_tasks_one_done(self, task: str, *, body: Json, **_more: Any) -> Told:
        """It is done."""
        return self._change("tasks_one_done", task, body, state="done")

    def post_tasks_one_items(self, task: str, *, body: Json, **_more: Any) -> Told:
        """Say what became of its items."""
        self.written.append((f"tasks_{task}_items", body))
        self.items.setdefault(task, {}).update({one["key"]: one for one in body["items"]})
        return 200, {"task": task}

    def get_tasks_one_items(self, task: str, **_more: Any) -> Told:
        """List them."""
        return 200, {"items": list(self.items.get(task, {}).values()), "next": None}

    # Decisions, checkpoints, handoffs, facts. -------------------------------------------------------------------------

    def post_sessions_one_decisions(self, session: str, *, body: Json, **_more: Any) -> Told:
        """Write one down."""
        return self._keep("decisions", session, body, status="open")

    def get_sessions_one_decisions(self, session: str, *, asked: dict[str, str], **_more: Any) -> Told:
        """List them."""
        found = [one for one in self._of("decisions", session) if one["status"] == "open" or "open" not in asked]
        return 200, {"items": found, "next": None}

    def post_decisions_one_conclude(self, decision: str, *, body: Json, **_more: Any) -> Told:
        """Say what came of it."""
        return self._change("decisions_one_conclude", decision, body)

    def post_sessions_one_checkpoints(self, session: str, *, body: Json, **_more: Any) -> Told:
        """Keep one."""
        return self._keep("checkpoints", session, body)

    def get_sessions_one_checkpoints(self, session: str, **_more: Any) -> Told:
        """The latest five."""
        return 200, {"items": self._of("checkpoints", session)[:-6:-1], "next": None}

    def post_sessions_one_handoffs(self, session: str, *, body: Json, **_more: Any) -> Told:
        """Leave one."""
        return self._keep("handoffs", session, body, accepted=False)

    def post_handoffs_one_accept(self, handoff: str, *, body: Json, **_more: Any) -> Told:
        """Take it."""
        return self._change("handoffs_one_accept", handoff, body, accepted=True)

    def post_sessions_one_facts(self, session: str, *, body: Json, **_more: Any) -> Told:
        """Record one; a value may come again."""
        return self._keep("facts", session, body)

    # Messages, claims and the rest. -----------------------------------------------------------------------------------

    def post_messages(self, *, body: Json, **_more: Any) -> Told:
        """Send one. There is one agent, and who is named gets it in the same box."""
        return self._keep("messages", "", body, **{"from": {"kind": "agent", "agent": ME}, "unread": True})

    def get_messages(self, *, asked: dict[str, str], **_more: Any) -> Told:
        """Those that were not read."""
        shared = asked.get("box") == "shared"
        found = [one for one in self._of("messages", "") if one["unread"] and (one["to"] == "shared") == shared]
        return 200, {"items": found, "next": None}

    def post_messages_one_read(self, message: str, *, body: Json, **_more: Any) -> Told:
        """Mark it."""
        return self._change("messages_one_read", message, body, unread=False)

    def post_claims(self, **_more: Any) -> Told:
        """There is never any work here."""
        return 200, {"claimed": None}

    def post_capacity(self, *, body: Json, **_more: Any) -> Told:
        """It paces nobody."""
        return self._keep("capacity", "", body)

    def post_artifacts(self, *, body: Json, **_more: Any) -> Told:
        """Record one."""
        return self._keep("artifacts", "", body, stored=False)

    def put_artifacts_one_bytes(self, artifact: str, **_more: Any) -> Told:
        """Its bytes, which are not kept."""
        return self._change("artifacts_one_bytes", artifact, {}, stored=True)
