"""Working state: tasks, decisions, checkpoints, handoffs, messages, facts, capacity.

Each write is sent under the lease and counts as progress.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gatebook_client.blocking import Blocking, to_blocking, to_blocking_as
from gatebook_client.effect_keys import canonical
from gatebook_client.http import AsyncHttpClient, Response
from gatebook_client.types import Json

C = TypeVar("C", bound="AsyncWorkingState")

ITEMS_AT_ONCE = 1000


class AsyncWorkingState:
    """Working state of a session.

    Every method raises ServerUnavailable, Refused, LeaseLost, SessionEnded.
    """

    id: str
    process: str
    http: AsyncHttpClient

    async def send_command(self, path: str, body: Json, version: int | None = None) -> Response:
        """Send one command under the lease."""
        raise NotImplementedError

    # Tasks and their items.

    async def task(
        self,
        key: str,
        title: str = "",
        *,
        parent: str = "",
        priority: int = 0,
        items: Sequence[str] = (),
    ) -> "AsyncTask":
        """Return the task with that key, created if it is new.

        `parent` is the key of another task; `items` are added as pending.
        """
        body: Json = {"key": key, "title": title or key, "priority": priority}
        if parent:
            body["parent"] = parent
        answer = (await self.send_command(f"/sessions/{self.id}/tasks", body)).body
        task = AsyncTask(self, str(answer["id"]), key, str(answer.get("state") or "pending"))
        if items:
            existing = {entry["key"] for entry in await task.items()}
            await task.set_items({item: "pending" for item in items if item not in existing})
        return task

    # Decisions.

    async def decide(self, /, key: str, choice: str, **more: Any) -> "AsyncDecision":
        """Record a decision before acting on it.

        `more` may contain rationale, planned_action, alternatives, effect_key.
        """
        body = {"key": key, "choice": choice} | {
            name: value for name, value in more.items() if value is not None
        }
        return AsyncDecision(
            self, (await self.send_command(f"/sessions/{self.id}/decisions", body)).body
        )

    async def decisions(self, *, open_only: bool = True) -> "list[AsyncDecision]":
        """Return the open decisions of this session, or all of them."""
        response = await self.http.get(
            f"/sessions/{self.id}/decisions", open=1 if open_only else None
        )
        return [AsyncDecision(self, item) for item in response.body.get("items", [])]

    # Checkpoints.

    async def checkpoint(
        self, /, summary: str = "", *, state: Any = None, cursor: str = "", **more: Any
    ) -> Json:
        """Store what the next worker reads first, at most 64 KiB.

        Losing a checkpoint loses nothing of the journal. `more` may contain cache_keys (list of
        texts) and pins (name to version).
        """
        body = {
            "summary": summary or None,
            "state": canonical(state),
            "cursor": cursor or None,
        } | more
        fields = {name: value for name, value in body.items() if value is not None}
        return (await self.send_command(f"/sessions/{self.id}/checkpoints", fields)).body

    async def checkpoints(self) -> list[Json]:
        """Return the latest checkpoints, newest first."""
        return list((await self.http.get(f"/sessions/{self.id}/checkpoints")).body.get("items", []))

    # Handoffs.

    async def handoff(
        self,
        in_progress: Iterable[str] = (),
        decided: Iterable[str] = (),
        needs_attention: Iterable[str] = (),
        can_wait: Iterable[str] = (),
        waits_on: Iterable[Mapping[str, str]] = (),
    ) -> Json:
        """Hand the work over to the next worker, in five short lists."""
        body: Json = {
            "in_progress": list(in_progress),
            "decided": list(decided),
            "needs_attention": list(needs_attention),
            "can_wait": list(can_wait),
            "waits_on": [dict(item) for item in waits_on],
        }
        return (await self.send_command(f"/sessions/{self.id}/handoffs", body)).body

    async def accept_handoff(self, handoff: str) -> Json:
        """Record that this process read a handoff and continues its work."""
        return (await self.send_command(f"/handoffs/{handoff}/accept", {})).body

    # Messages, facts, capacity.

    async def inbox(self, *, shared: bool = False) -> "list[AsyncMessage]":
        """Return the unread messages in order: this agent's, or those sent to everybody."""
        messages, after = [], ""
        while True:
            page = (
                await self.http.get(
                    "/messages", unread=1, box="shared" if shared else "mine", after=after
                )
            ).body
            messages += [AsyncMessage(self.http, item) for item in page.get("items", [])]
            after = str(page.get("next") or "")
            if not after:
                return messages

    async def send_message(
        self, to: str, body: str, *, subject: str = "", in_reply_to: str = ""
    ) -> Json:
        """Send a message to an agent by its name, or to everybody (`shared`)."""
        fields: Json = {"to": to, "body": body, "session": self.id}
        fields |= {
            name: value
            for name, value in (("subject", subject), ("in_reply_to", in_reply_to))
            if value
        }
        return (await self.send_command("/messages", fields)).body

    async def record_fact(
        self, name: str, value: Any, source: str, *, fresh_s: int | None = None
    ) -> Json:
        """Record an observation, its source, and for how long it counts as fresh."""
        body: Json = {"name": name, "value": value, "source": source}
        return (
            await self.send_command(
                f"/sessions/{self.id}/facts",
                body | ({} if fresh_s is None else {"fresh_s": fresh_s}),
            )
        ).body

    async def report_capacity(self, /, **values: int) -> Json:
        """Report context_left_tokens, context_total_tokens, time_left_s, queue.

        Low values throttle plans.
        """
        return (await self.send_command("/capacity", {"session": self.id, **values})).body

    async def store_artifact(
        self, name: str, media_type: str, content: bytes, *, effect: str = ""
    ) -> Json:
        """Store bytes as an artifact, by their hash."""
        body: Json = {
            "session": self.id,
            "type": name.rpartition(".")[2] or "file",
            "name": name,
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
            "media_type": media_type,
        }
        recorded = (
            await self.send_command("/artifacts", body | ({"effect": effect} if effect else {}))
        ).body
        return (await self.http.put(f"/artifacts/{recorded['id']}/bytes", content)).body

    async def resume(self) -> Json:
        """Return what a new worker reads first: is it safe to resume, why, and what is open."""
        return (await self.http.get(f"/sessions/{self.id}/resume", process=self.process)).body


@dataclass(frozen=True)
class AsyncTask:
    """A task of a session; `state` is the state when it was requested."""

    session: AsyncWorkingState
    id: str
    key: str
    state: str = "pending"

    @property
    def is_finished(self) -> bool:
        """Whether an earlier process finished it."""
        return self.state in ("done", "cancelled", "failed")

    async def start(self) -> None:
        """Set the task to running, with this process as its worker."""
        await self.change(state="running", worker=self.session.process[:8])

    async def change(self, /, **what: Any) -> None:
        """Change title, state, priority, worker or branch_label."""
        await self.session.send_command(f"/tasks/{self.id}/change", what)

    async def set_item(self, key: str, state: str = "done", detail: str = "") -> None:
        """Set the state of one item: pending, done or failed."""
        entry = {"key": key, "state": state} | ({"detail": detail} if detail else {})
        await self.session.send_command(f"/tasks/{self.id}/items", {"items": [entry]})

    async def set_items(self, states: Mapping[str, str]) -> None:
        """Set the states of many items."""
        entries = [{"key": key, "state": state} for key, state in states.items()]
        for start in range(0, len(entries), ITEMS_AT_ONCE):
            await self.session.send_command(
                f"/tasks/{self.id}/items", {"items": entries[start : start + ITEMS_AT_ONCE]}
            )

    async def items(self, state: str = "") -> list[Json]:
        """Return the items of the task, or those in `state` only."""
        items: list[Json] = []
        after = ""
        while True:
            page = (await self.session.http.get(f"/tasks/{self.id}/items", after=after)).body
            items += page.get("items", [])
            after = str(page.get("next") or "")
            if not after:
                return [item for item in items if not state or item["state"] == state]

    async def finish(self) -> None:
        """Set the task to done."""
        await self.session.send_command(f"/tasks/{self.id}/done", {})


class AsyncDecision:
    """A recorded decision; `conclude` it after acting on it."""

    def __init__(self, session: AsyncWorkingState, answer: Json) -> None:
        self.session = session
        self.id = str(answer["id"])
        self.key = str(answer.get("key") or "")
        self.choice = str(answer.get("choice") or "")
        self.status = str(answer.get("status") or "open")

    async def conclude(self, outcome: str, status: str = "done") -> None:
        """Record its outcome with the status done, failed or abandoned."""
        answer = (
            await self.session.send_command(
                f"/decisions/{self.id}/conclude", {"outcome": outcome, "status": status}
            )
        ).body
        self.status = str(answer.get("status") or status)


class AsyncMessage:
    """A message of an inbox. It is returned until it is marked as read."""

    def __init__(self, http: AsyncHttpClient, answer: Json) -> None:
        self._http = http
        self.data = answer
        self.id = str(answer["id"])
        sender = answer.get("from") or {}
        self.sender = str(sender.get("agent") or sender.get("kind") or "")
        self.subject = str(answer.get("subject") or "")
        self.body = str(answer.get("body") or "")

    async def mark_read(self) -> None:
        """Mark it as read; a second call changes nothing."""
        await self._http.post(f"/messages/{self.id}/read", {})


class WorkingState(Blocking[C]):
    """The blocking form of a session's working state."""

    task = to_blocking_as(AsyncWorkingState.task, lambda task: Task(task))
    decide = to_blocking_as(AsyncWorkingState.decide, lambda decision: Decision(decision))
    decisions = to_blocking_as(
        AsyncWorkingState.decisions, lambda items: [Decision(item) for item in items]
    )
    checkpoint = to_blocking(AsyncWorkingState.checkpoint)
    checkpoints = to_blocking(AsyncWorkingState.checkpoints)
    handoff = to_blocking(AsyncWorkingState.handoff)
    accept_handoff = to_blocking(AsyncWorkingState.accept_handoff)
    inbox = to_blocking_as(AsyncWorkingState.inbox, lambda items: [Message(item) for item in items])
    send_message = to_blocking(AsyncWorkingState.send_message)
    record_fact = to_blocking(AsyncWorkingState.record_fact)
    report_capacity = to_blocking(AsyncWorkingState.report_capacity)
    store_artifact = to_blocking(AsyncWorkingState.store_artifact)
    resume = to_blocking(AsyncWorkingState.resume)


class Task(Blocking[AsyncTask]):
    """A task of a session; `state` is the state when it was requested."""

    start = to_blocking(AsyncTask.start)
    change = to_blocking(AsyncTask.change)
    set_item = to_blocking(AsyncTask.set_item)
    set_items = to_blocking(AsyncTask.set_items)
    items = to_blocking(AsyncTask.items)
    finish = to_blocking(AsyncTask.finish)

    @property
    def id(self) -> str:
        """Its id."""
        return self.core.id

    @property
    def key(self) -> str:
        """Its key in the session."""
        return self.core.key

    @property
    def state(self) -> str:
        """Its state when it was requested."""
        return self.core.state

    @property
    def is_finished(self) -> bool:
        """Whether an earlier process finished it."""
        return self.core.is_finished


class Decision(Blocking[AsyncDecision]):
    """A recorded decision; `conclude` it after acting on it."""

    conclude = to_blocking(AsyncDecision.conclude)

    @property
    def id(self) -> str:
        """Its id."""
        return self.core.id

    @property
    def key(self) -> str:
        """Its key in the session."""
        return self.core.key

    @property
    def choice(self) -> str:
        """What was chosen."""
        return self.core.choice

    @property
    def status(self) -> str:
        """open, done, failed or abandoned."""
        return self.core.status


class Message(Blocking[AsyncMessage]):
    """A message of an inbox. It is returned until it is marked as read."""

    mark_read = to_blocking(AsyncMessage.mark_read)

    @property
    def data(self) -> Json:
        """The message as Gatebook returns it."""
        return self.core.data

    @property
    def id(self) -> str:
        """Its id."""
        return self.core.id

    @property
    def sender(self) -> str:
        """The agent, or the kind of sender."""
        return self.core.sender

    @property
    def subject(self) -> str:
        """Its subject."""
        return self.core.subject

    @property
    def body(self) -> str:
        """Its text."""
        return self.core.body
