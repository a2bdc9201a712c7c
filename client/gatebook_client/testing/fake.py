"""`FakeLedger`: Gatebook's answers for the simple cases, in memory, with a clock that you move.

It can be made to ask people, to refuse, to be away, to lose an answer it has acted on, and to let the agent's process
die before or after any of its steps. What it stores can be looked at. It is no judge of your policy or your tools: for
that, use a real Gatebook.
"""

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from gatebook_client.client import Client
from gatebook_client.sessions import Session
from gatebook_client.testing.desk import Desk, Refusal
from gatebook_client.testing.state import US, Crash
from gatebook_client.values import Json

BEFORE, AFTER = "before", "after"


class Process(httpx.BaseTransport):
    """One process of an agent, which can die; the ledger lives on."""

    def __init__(self, ledger: "FakeLedger") -> None:
        self.ledger = ledger
        self.dead = False
        self._dies: tuple[str, str] | None = None

    def dies(self, when: str, step: str) -> None:
        """Die `before` or `after` the next step of that name: plan, dispatch, acknowledge, fail, probe, ….

        Before: the ledger does not hear of it. After: it did, and the process never learns of it.
        """
        self._dies = when, step

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Let the ledger answer, unless somebody is dead, away or loses the answer."""
        step = step_of(request)
        if self.dead and step == "beats":  # of a thread that in life would be gone too
            raise httpx.ConnectError("nobody is there", request=request)
        if self.dead:
            raise Crash
        dies = self._dies is not None and self._dies[1] == step
        if dies and self._dies == (BEFORE, step):
            self.dead = True
            raise Crash
        response = self.ledger.answer(request, step)
        if dies:
            self.dead = True
            raise Crash
        return response


class FakeLedger(Desk):
    """A Gatebook in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []  # what was asked, in order: the names of the steps
        self._away = 0
        self._lost: list[str] = []
        self._refused: list[tuple[str, Refusal]] = []

    # How a test uses it. ----------------------------------------------------------------------------------------------

    def process(self) -> Process:
        """A new process of an agent."""
        return Process(self)

    def client(self, process: Process | None = None, **how: Any) -> Client:
        """A client in that process, or a new one. Its sleeping moves the ledger's clock and takes no time."""
        return Client("http://ledger", "token", transport=process or self.process(), sleep=self.sleep, **how)

    def session(self, key: str = "", *, process: Process | None = None, **how: Any) -> Session:
        """A session of a process, or of a new one; `how` as in `Client.session`, patience_s and waiting among it."""
        mine = {name: how.pop(name) for name in ("patience_s", "waiting") if name in how}
        return self.client(process, **({"patience_s": 1.0} | mine)).session(key, **how)

    def sleep(self, seconds: float) -> None:
        """Let time pass at once; a breath of real time, so that other threads get on."""
        self.now_us += int(seconds * US)
        time.sleep(0.0005)

    def away(self, requests: int = 1_000_000) -> None:
        """Answer nobody, for so many requests; 0: be back."""
        self._away = requests

    def lose_answer(self, step: str) -> None:
        """Do the next step of that name, and lose the answer on its way."""
        self._lost.append(step)

    def refuse(self, step: str, code: str, status: int = 409) -> None:
        """Refuse the next step of that name."""
        self._refused.append((step, Refusal(status, code)))

    def states(self) -> dict[str, str]:
        """The state of each effect, by its tool, the newest where several have one."""
        return {row.tool: row.state for row in self.effects.values()}

    # What a process meets. --------------------------------------------------------------------------------------------

    def answer(self, request: httpx.Request, step: str) -> httpx.Response:
        """Answer one request, as Gatebook would."""
        with self.lock:
            if self._away > 0:
                self._away -= 1
                raise httpx.ConnectError("the ledger is away", request=request)
            self.steps.append(step)
            try:
                for refused in self._refused:
                    if refused[0] == step:
                        self._refused.remove(refused)
                        raise refused[1]
                response = self._serve(request)
            except Refusal as refusal:
                problem = {"status": refusal.status, "code": refusal.code, "detail": refusal.sentence, **refusal.more}
                response = httpx.Response(refusal.status, json=problem, request=request)
            if step in self._lost:
                self._lost.remove(step)
                raise httpx.ReadError("the answer was lost", request=request)
            return response

    def _serve(self, request: httpx.Request) -> httpx.Response:
        split = urlsplit(str(request.url))
        asked = {name: values[0] for name, values in parse_qs(split.query).items()}
        parts = split.path.removeprefix("/api/v1/").split("/")
        body: Json = json.loads(request.content) if request.method == "POST" and request.content else {}
        door: Callable[..., tuple[int, Json]] | None = getattr(self, name_of(request.method, parts), None)
        if door is None:
            raise Refusal(
                404, "not_found", f"This ledger in memory has no {request.method} {split.path}; use a real one."
            )
        self.now_us += 1  # no two things happen at one moment
        key = request.headers.get("Idempotency-Key", "")
        if key in self.answers and parts[-1] not in ("effects", "dispatch"):
            status, told = self.answers[key]
        else:
            status, told = door(*(part for part in parts if "-" in part), body=body, key=key, asked=asked)
            if key and request.method == "POST":
                self.answers[key] = status, told
        return httpx.Response(status, json=told, request=request)


def name_of(method: str, parts: list[str]) -> str:
    """The method of `Desk` for a request: `post_effects_one_dispatch` for POST /effects/{id}/dispatch."""
    return f"{method.lower()}_" + "_".join("one" if "-" in part else part for part in parts)


STEPS = {"post_effects": "plan", "post_sessions": "open"}


def step_of(request: httpx.Request) -> str:
    """The word for a request: plan, dispatch, acknowledge, fail, probe, verdict, beats, leases, …"""
    parts = urlsplit(str(request.url)).path.removeprefix("/api/v1/").split("/")
    return STEPS.get(name_of(request.method, parts), parts[-1] if "-" not in parts[-1] else parts[-2])
