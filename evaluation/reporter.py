"""How an agent speaks with Gatebook: commands over HTTP, each sent again under the same key until it is answered.

This is all that a program needs to be an agent: plan, dispatch, act, acknowledge. Nothing here is stored on disk.
"""

import hashlib
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

TRY_AGAIN = frozenset({429, 502, 503, 504})
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 2.0
TIMEOUT_S = 10.0

Json = dict[str, Any]


class AwayError(Exception):
    """Gatebook could not be reached, or could not take anything, for as long as we had patience; the text says more."""


class RefusedError(Exception):
    """Gatebook answered no. `code` is its stable word for the reason, the text its own sentence."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(f"{sentence} ({code}, HTTP {status})")
        self.status = status
        self.code = code


class RejectedError(Exception):
    """Raised by an action when the other side said no and nothing happened; the text is what it said."""


@dataclass
class Outcome:
    """What came of one action. `outcome` is ok, error or unknown; `reference` names it in the outside world."""

    outcome: str
    reference: str = ""
    result: Any = None


@dataclass
class Reporter:
    """One process of an agent, speaking with the Gatebook at `url`.

    `process` is made when the process starts and never stored: after a crash nobody can pretend to be it, so a dispatch
    that it was granted is granted to nobody else.
    """

    url: str
    token: str
    patience_s: float = 15.0
    process: str = field(default_factory=lambda: uuid.uuid4().hex)
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.http = httpx.Client(
            base_url=f"{self.url.rstrip('/')}/api/v1",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=TIMEOUT_S,
            trust_env=False,
        )

    def close(self) -> None:
        """Give the connections back."""
        self.http.close()

    def ask(
        self, method: str, path: str, *, key: str = "", content: bytes | None = None, body: Json | None = None
    ) -> Json:
        """Send one request and return the answer's object; a POST needs `key`.

        No answer, or an answer that asks for patience, leads to the same request with the same key: if the first one
        arrived after all, Gatebook repeats what it said. Raises AwayError, RefusedError.
        """
        headers = {"Idempotency-Key": key} if key else {}
        until, wait_s = time.monotonic() + self.patience_s, FIRST_WAIT_S
        while True:
            try:
                response = self.http.request(method, path, json=body, content=content, headers=headers)
            except httpx.TransportError as fault:
                reason, asked_s = str(fault) or type(fault).__name__, 0.0
            else:
                if response.status_code not in TRY_AGAIN:
                    return _object(response)
                reason, asked_s = f"HTTP {response.status_code}", _asked_to_wait(response)
            if time.monotonic() + max(wait_s, asked_s) > until:
                raise AwayError(f"No Gatebook answers at {self.url} ({reason}).")
            self.sleep(max(wait_s, asked_s))
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def command(self, path: str, body: Json) -> Json:
        """Post one command under a new key."""
        return self.ask("POST", path, key=uuid.uuid4().hex, body=body)

    def perform(
        self,
        session: str,
        plan: Json,
        act: Callable[[str], Outcome],
        again: Callable[[], object] | None = None,
        told: Callable[[Json], object] = lambda _answer: None,
    ) -> Json:
        """Have one effect written down before and after `act` makes it happen, and return its last answer.

        `act` gets the key to offer to the remote. When it raises RejectedError the attempt failed cleanly: with `again`
        given, that is called once and the same effect is tried a second time; else the answer says failed. When `act`
        raises anything else nobody can know what happened: that is recorded too, and the error goes on. `told` hears
        the answer to each attempt.
        """
        answer = self._attempt(session, plan, act)
        told(answer)
        if answer["state"] == "failed" and again is not None:
            again()
            answer = self._attempt(session, plan, act)
            told(answer)
        return answer

    def plan(self, session: str, plan: Json) -> Json:
        """Write down an intention. `plan` holds effect_key, tool, arguments and what else POST /effects takes."""
        if "compensates" in plan:
            undone, body = plan["compensates"], {name: value for name, value in plan.items() if name != "compensates"}
            return self.command(f"/effects/{undone}/compensate", body)
        return self.command("/effects", {"session": session, **plan})

    def artifact(self, session: str, effect: str, name: str, media_type: str, content: bytes) -> Json:
        """Record something made, by its hash, and store its bytes."""
        recorded = self.command(
            "/artifacts",
            {
                "session": session,
                "effect": effect,
                "type": name.rpartition(".")[2],
                "name": name,
                "sha256": hashlib.sha256(content).hexdigest(),
                "size": len(content),
                "media_type": media_type,
            },
        )
        return self.ask("PUT", f"/artifacts/{recorded['id']}/bytes", content=content)

    def _attempt(self, session: str, plan: Json, act: Callable[[str], Outcome]) -> Json:
        """Ask for leave, use it, act, and say what came of it."""
        planned = self.plan(session, plan)
        if planned["answer"] != "proceed":
            raise RefusedError(200, planned["answer"], f"{plan['effect_key']} may not be done now")
        path = f"/effects/{planned['id']}"
        granted = self.command(f"{path}/dispatch", {"process": self.process, "arguments": plan["arguments"]})
        attempt = granted["attempt"]
        try:
            done = act(granted["remote_key"])
        except RejectedError as rejection:
            body = {"attempt": attempt, "reason": "rejected", "detail": str(rejection)}
            return self.command(f"{path}/fail", body)
        except Exception as error:
            self.command(f"{path}/fail", {"attempt": attempt, "reason": "error", "detail": repr(error)})
            raise
        body = {"attempt": attempt, "outcome": done.outcome, "result": done.result}
        if done.reference:
            body["external_reference"] = done.reference
        return self.command(f"{path}/acknowledge", body)


def _object(response: httpx.Response) -> Json:
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise RefusedError(response.status_code, "not_gatebook", "The answer is not Gatebook's; check the address")
    if not response.is_success:
        sentence = str(answer.get("detail") or answer.get("title") or "Refused").rstrip(".")
        raise RefusedError(response.status_code, str(answer.get("code") or "refused"), sentence)
    return answer


def _asked_to_wait(response: httpx.Response) -> float:
    asked = response.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdigit() else 0.0
