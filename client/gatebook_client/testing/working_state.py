"""Working state of the Gatebook in memory, stored and returned as it was sent."""

from typing import Any

from gatebook_client.testing.models import new_id
from gatebook_client.types import Json

StatusAndBody = tuple[int, Json]
ME = "tester"


class FakeWorkingState:
    """Tasks, decisions, checkpoints, handoffs, messages and the like.

    `written` holds the requests: path and body.
    """

    def __init__(self) -> None:
        self.written: list[tuple[str, Json]] = []
        self.kept: dict[str, Json] = {}
        self.items: dict[str, dict[str, Json]] = {}  # by task and key

    def _keep(self, kind: str, session: str, body: Json, **more: Any) -> StatusAndBody:
        self.written.append((f"sessions_{session}_{kind}" if session else kind, body))
        existing = [
            item
            for item in self._of(kind, session)
            if body.get("key") and item.get("key") == body["key"]
        ]
        if existing:
            return 200, existing[0]
        new: Json = {"id": new_id(), "kind": kind, "of": session, "version": 1} | more | body
        self.kept[new["id"]] = new
        return 201, new

    def _of(self, kind: str, session: str) -> list[Json]:
        return [
            item for item in self.kept.values() if (item["kind"], item["of"]) == (kind, session)
        ]

    def _change(self, path: str, subject: str, body: Json, **more: Any) -> StatusAndBody:
        self.written.append((path.replace("one", subject), body))
        self.kept[subject] |= body | more
        return 200, self.kept[subject]

    # Tasks.

    def post_sessions_one_tasks(self, session: str, *, body: Json, **_more: Any) -> StatusAndBody:
        """Create a task."""
        return self._keep("tasks", session, body, state="pending")

    def get_sessions_one_tasks(self, session: str, **_more: Any) -> StatusAndBody:
        """List tasks."""
        return 200, {"items": self._of("tasks", session), "next": None}

    def post_tasks_one_change(self, task: str, *, body: Json, **_more: Any) -> StatusAndBody:
        """Change a task."""
        return self._change("tasks_one_change", task, body)

    def post_tasks_one_done(self, task: str, *, body: Json, **_more: Any) -> StatusAndBody:
        """Set a task to done."""
        return self._change("tasks_one_done", task, body, state="done")

    def post_tasks_one_items(self, task: str, *, body: Json, **_more: Any) -> StatusAndBody:
        """Set the states of its items."""
        self.written.append((f"tasks_{task}_items", body))
        self.items.setdefault(task, {}).update({item["key"]: item for item in body["items"]})
        return 200, {"task": task}

    def get_tasks_one_items(self, task: str, **_more: Any) -> StatusAndBody:
        """List its items."""
        return 200, {"items": list(self.items.get(task, {}).values()), "next": None}

    # Decisions, checkpoints, handoffs, facts.

    def post_sessions_one_decisions(
        self, session: str, *, body: Json, **_more: Any
    ) -> StatusAndBody:
        """Record a decision."""
        return self._keep("decisions", session, body, status="open")

    def get_sessions_one_decisions(
        self, session: str, *, params: dict[str, str], **_more: Any
    ) -> StatusAndBody:
        """List decisions."""
        items = [
            item
            for item in self._of("decisions", session)
            if item["status"] == "open" or "open" not in params
        ]
        return 200, {"items": items, "next": None}

    def post_decisions_one_conclude(
        self, decision: str, *, body: Json, **_more: Any
    ) -> StatusAndBody:
        """Record the outcome of a decision."""
        return self._change("decisions_one_conclude", decision, body)

    def post_sessions_one_checkpoints(
        self, session: str, *, body: Json, **_more: Any
    ) -> StatusAndBody:
        """Store a checkpoint."""
        return self._keep("checkpoints", session, body)

    def get_sessions_one_checkpoints(self, session: str, **_more: Any) -> StatusAndBody:
        """List the latest five checkpoints."""
        return 200, {"items": self._of("checkpoints", session)[:-6:-1], "next": None}

    def post_sessions_one_handoffs(
        self, session: str, *, body: Json, **_more: Any
    ) -> StatusAndBody:
        """Store a handoff."""
        return self._keep("handoffs", session, body, accepted=False)

    def post_handoffs_one_accept(self, handoff: str, *, body: Json, **_more: Any) -> StatusAndBody:
        """Accept a handoff."""
        return self._change("handoffs_one_accept", handoff, body, accepted=True)

    def post_sessions_one_facts(self, session: str, *, body: Json, **_more: Any) -> StatusAndBody:
        """Record a fact; the same value may be sent again."""
        return self._keep("facts", session, body)

    # Messages, claims and the rest.

    def post_messages(self, *, body: Json, **_more: Any) -> StatusAndBody:
        """Send a message. There is one agent, so every message goes to the same inbox."""
        return self._keep(
            "messages", "", body, **{"from": {"kind": "agent", "agent": ME}, "unread": True}
        )

    def get_messages(self, *, params: dict[str, str], **_more: Any) -> StatusAndBody:
        """List unread messages."""
        shared = params.get("box") == "shared"
        items = [
            item
            for item in self._of("messages", "")
            if item["unread"] and (item["to"] == "shared") == shared
        ]
        return 200, {"items": items, "next": None}

    def post_messages_one_read(self, message: str, *, body: Json, **_more: Any) -> StatusAndBody:
        """Mark a message as read."""
        return self._change("messages_one_read", message, body, unread=False)

    def post_claims(self, **_more: Any) -> StatusAndBody:
        """Return no claim: there is never any work."""
        return 200, {"claimed": None}

    def post_capacity(self, *, body: Json, **_more: Any) -> StatusAndBody:
        """Record a capacity report; it never throttles plans."""
        return self._keep("capacity", "", body)

    def post_artifacts(self, *, body: Json, **_more: Any) -> StatusAndBody:
        """Record an artifact."""
        return self._keep("artifacts", "", body, stored=False)

    def put_artifacts_one_bytes(self, artifact: str, **_more: Any) -> StatusAndBody:
        """Accept the bytes of an artifact without storing them."""
        return self._change("artifacts_one_bytes", artifact, {}, stored=True)
