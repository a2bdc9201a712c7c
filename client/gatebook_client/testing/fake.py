"""`FakeGatebook`: simple cases of Gatebook's answers, in memory, with a clock that you move.

It can require approval, refuse, be unreachable, lose a response, and let the agent's process die
before or after any step. Tests can inspect what it stores. It does not evaluate your policy or
your tools: for that, use a real Gatebook.
"""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from gatebook_client.client import AsyncClient, Client, SessionOpening
from gatebook_client.sessions import Session
from gatebook_client.testing.endpoints import FakeEndpoints, Refusal
from gatebook_client.testing.models import US, Crash
from gatebook_client.types import Json

BEFORE, AFTER = "before", "after"


class Process(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """One process of an agent, which can die; the server continues."""

    def __init__(self, server: "FakeGatebook") -> None:
        self.server = server
        self.dead = False
        self._crash_at: tuple[str, str] | None = None

    def crash_at(self, when: str, step: str) -> None:
        """Die `before` or `after` the next step of that name: plan, dispatch, acknowledge, ….

        Before: the server does not receive it. After: the server did, and the process never learns
        of it.
        """
        self._crash_at = when, step

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the server's answer, unless the process crashes or the server is unavailable."""
        step = find_step(request)
        if self.dead and step == "heartbeats":  # from the thread of the dead process
            raise httpx.ConnectError("the process is dead", request=request)
        if self.dead:
            raise Crash
        crashes = self._crash_at is not None and self._crash_at[1] == step
        if crashes and self._crash_at == (BEFORE, step):
            self.dead = True
            raise Crash
        response = self.server.answer(request, step)
        if crashes:
            self.dead = True
            raise Crash
        return response

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer an async client in the same way."""
        return self.handle_request(request)


class FakeGatebook(FakeEndpoints):
    """A Gatebook in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []  # names of the requested steps, in order
        self._unavailable_requests = 0
        self._lost_responses: list[str] = []
        self._refused: list[tuple[str, Refusal]] = []

    # Methods for tests.

    def process(self) -> Process:
        """Return a new process of an agent."""
        return Process(self)

    def client(self, process: Process | None = None, **how: Any) -> Client:
        """Return a client in that process, or in a new one.

        Its sleeps move the server's clock and take no time.
        """
        return Client(
            "http://fake", "token", transport=process or self.process(), sleep=self.sleep, **how
        )

    def session(self, key: str = "", *, process: Process | None = None, **how: Any) -> Session:
        """Open a session in that process, or in a new one.

        `how` as in `Client.session`, and patience_s and on_wait of `Client`.
        """
        client_options = {name: how.pop(name) for name in ("patience_s", "on_wait") if name in how}
        return self.client(process, **({"patience_s": 1.0} | client_options)).session(key, **how)

    def async_session(
        self, key: str = "", *, process: Process | None = None, **how: Any
    ) -> SessionOpening:
        """Open a session of an async client, as `session` does: `async with` it."""
        client_options = {name: how.pop(name) for name in ("patience_s", "on_wait") if name in how}
        options: dict[str, Any] = {"patience_s": 1.0} | client_options
        client = AsyncClient(
            "http://fake",
            "token",
            transport=process or self.process(),
            sleep=self.sleep_async,
            **options,
        )
        return client.session(key, **how)

    async def sleep_async(self, seconds: float) -> None:
        """Move the clock at once, and let other tasks run."""
        self.now_us += int(seconds * US)
        await asyncio.sleep(0)

    def sleep(self, seconds: float) -> None:
        """Move the clock at once, and yield briefly so that other threads run."""
        self.now_us += int(seconds * US)
        time.sleep(0.0005)

    def go_down(self, requests: int = 1_000_000) -> None:
        """Be unreachable for so many requests; 0: answer again."""
        self._unavailable_requests = requests

    def lose_response(self, step: str) -> None:
        """Execute the next step of that name, and lose its response."""
        self._lost_responses.append(step)

    def refuse_next(self, step: str, code: str, status: int = 409) -> None:
        """Refuse the next step of that name."""
        self._refused.append((step, Refusal(status, code)))

    def states(self) -> dict[str, str]:
        """Return the state of each effect by its tool, the newest if several have one."""
        return {row.tool: row.state for row in self.effects.values()}

    # Answers to requests.

    def answer(self, request: httpx.Request, step: str) -> httpx.Response:
        """Answer one request as Gatebook would."""
        with self.lock:
            if self._unavailable_requests > 0:
                self._unavailable_requests -= 1
                raise httpx.ConnectError("the server is unavailable", request=request)
            self.steps.append(step)
            try:
                for refused in self._refused:
                    if refused[0] == step:
                        self._refused.remove(refused)
                        raise refused[1]
                response = self._serve(request)
            except Refusal as refusal:
                problem = {
                    "status": refusal.status,
                    "code": refusal.code,
                    "detail": refusal.sentence,
                    **refusal.more,
                }
                response = httpx.Response(refusal.status, json=problem, request=request)
            if step in self._lost_responses:
                self._lost_responses.remove(step)
                raise httpx.ReadError("the answer was lost", request=request)
            return response

    def _serve(self, request: httpx.Request) -> httpx.Response:
        split = urlsplit(str(request.url))
        params = {name: values[0] for name, values in parse_qs(split.query).items()}
        parts = split.path.removeprefix("/api/v1/").split("/")
        body: Json = (
            json.loads(request.content) if request.method == "POST" and request.content else {}
        )
        endpoint: Callable[..., tuple[int, Json]] | None = getattr(
            self, find_step_name(request.method, parts), None
        )
        if endpoint is None:
            raise Refusal(
                404,
                "not_found",
                f"FakeGatebook has no {request.method} {split.path}; use a real one.",
            )
        self.now_us += 1  # timestamps are unique
        key = request.headers.get("Idempotency-Key", "")
        if key in self.answers and parts[-1] not in ("effects", "dispatch"):
            status, answer = self.answers[key]
        else:
            named = [part for index, part in enumerate(parts) if _is_name(parts, index)]
            status, answer = endpoint(*named, body=body, key=key, params=params)
            if key and request.method == "POST":
                self.answers[key] = status, answer
        return httpx.Response(status, json=answer, request=request)


def find_step_name(method: str, parts: list[str]) -> str:
    """Return the method of `FakeEndpoints` for a request.

    POST /effects/{id}/dispatch is `post_effects_one_dispatch`.
    """
    names = ("one" if _is_name(parts, index) else part for index, part in enumerate(parts))
    return f"{method.lower()}_" + "_".join(names)


def _is_name(parts: list[str], index: int) -> bool:
    """Return whether a part of a path names an object."""
    return "-" in parts[index] or (index == 1 and parts[0] == "sessions")


STEPS = {"post_effects": "plan", "post_sessions": "open"}


def find_step(request: httpx.Request) -> str:
    """Return the step of a request: plan, dispatch, acknowledge, fail, probe, heartbeats,
    leases."""
    parts = urlsplit(str(request.url)).path.removeprefix("/api/v1/").split("/")
    return STEPS.get(
        find_step_name(request.method, parts), parts[-1] if "-" not in parts[-1] else parts[-2]
    )
