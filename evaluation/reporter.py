"""How an agent speaks with Gatebook: commands over HTTP, each sent again under the same key until it is answered.

This is all that a program needs to be an agent: plan, wait for people where they must say yes, dispatch, act,
acknowledge. Nothing here is stored on disk.
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
WAIT_S = 45  # how long one request waits for people, at most
STOPPED_AGAIN_S = 2.0  # a stop has no end that could be waited for

Json = dict[str, Any]


class AwayError(Exception):
    """Gatebook could not be reached, or could not take anything, for as long as we had patience; the text says more."""


class RefusedError(Exception):
    """Gatebook answered no. `code` is its stable word for it, `reason` why there is no leave, the text its sentence."""

    def __init__(self, status: int, code: str, sentence: str, reason: str = "") -> None:
        super().__init__(f"{sentence} ({code}, HTTP {status})")
        self.status = status
        self.code = code
        self.reason = reason


class NoLeaveError(Exception):
    """People, their clock or the policy said no; the effect was not begun. The text says who, and what they wrote.

    `effect` is its id, `status` what became of its gate, or `refused` where no gate was opened.
    """

    def __init__(self, effect: str, status: str, message: str = "") -> None:
        sentence = _WHY.get(status, f"the gate is {status}")
        super().__init__(f"{sentence}: “{message}”" if message else sentence)
        self.effect = effect
        self.status = status


_WHY = {
    "refused": "the policy refuses it",
    "denied": "denied",
    "denied_final": "denied for the rest of this session",
    "returned": "sent back",
    "expired": "nobody answered in time, and that is a no",
    "lapsed": "approved, and not begun before the leave ran out",
    "revoked": "the leave was taken back before it was used",
    "cancelled": "the request was withdrawn",
    "requirement_changed": "the policy asks for more now than when it was approved",
    "quorum_lost": "of those who approved it, too few may still rule",
}


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
    # Hears of every wait before it begins: the word `gate` with a plan's answer, or `stop` with what Gatebook says.
    waiting: Callable[[str, Json], object] = lambda _for, _answer: None

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
        return _object(self._send(method, path, key, content, body, TIMEOUT_S))

    def _send(
        self, method: str, path: str, key: str, content: bytes | None, body: Json | None, timeout_s: float
    ) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        until, wait_s = 0.0, FIRST_WAIT_S
        while True:
            try:
                response = self.http.request(
                    method, path, json=body, content=content, headers=headers, timeout=timeout_s
                )
            except httpx.TransportError as fault:
                reason, asked_s = str(fault) or type(fault).__name__, 0.0
            else:
                if response.status_code not in TRY_AGAIN:
                    return response
                reason, asked_s = f"HTTP {response.status_code}", _asked_to_wait(response)
            until = until or time.monotonic() + self.patience_s  # from the first failure: a wait may have been long
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

    def wait(self, gate: str) -> Json:
        """Wait until people, or their clock, have decided about a gate, however long that takes; return it.

        Each request is answered as soon as the gate is newer than the version sent with it, so no moment is left in
        which a ruling could be missed. A gate that a person has stopped is waited for until the stop is lifted.
        """
        version = 0
        while True:
            path = f"/gates/{gate}?wait={WAIT_S}&since={version}"
            response = self._send("GET", path, "", None, None, WAIT_S + TIMEOUT_S)
            found = _object(response)
            if found["status"] != "pending" and not (found["status"] == "approved" and found["held"]):
                return found
            version = found["version"]
            self.sleep(_asked_to_wait(response))

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
        planned = self._unless_stopped(lambda: self.plan(session, plan))
        if planned["answer"] == "wait" and "gate" in planned:
            self.waiting("gate", planned)
            gate = self.wait(planned["gate"]["id"])
            if gate["status"] != "approved":
                raise NoLeaveError(planned["id"], gate["status"], gate.get("message", ""))
        elif planned["leave"] == "refused":
            raise NoLeaveError(planned["id"], "refused")
        elif planned["answer"] != "proceed":
            raise RefusedError(200, planned["answer"], f"{plan['effect_key']} may not be done now")
        path = f"/effects/{planned['id']}"
        body = {"process": self.process, "arguments": plan["arguments"]}
        try:
            granted = self._unless_stopped(lambda: self.command(f"{path}/dispatch", body))
        except RefusedError as refusal:
            if refusal.reason in _WHY:  # it was taken back, or its time was over, between the ruling and here
                raise NoLeaveError(planned["id"], refusal.reason) from refusal
            raise
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

    def _unless_stopped(self, command: Callable[[], Json]) -> Json:
        """Give a command, and while a person has stopped it, again and again until the stop is lifted."""
        told = False
        while True:
            try:
                return command()
            except RefusedError as refusal:
                if refusal.code != "HELD":
                    raise
                if not told:
                    self.waiting("stop", {"detail": str(refusal)})
                told = True
                self.sleep(STOPPED_AGAIN_S)


def _object(response: httpx.Response) -> Json:
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise RefusedError(response.status_code, "not_gatebook", "The answer is not Gatebook's; check the address")
    if not response.is_success:
        sentence = str(answer.get("detail") or answer.get("title") or "Refused").rstrip(".")
        code, reason = str(answer.get("code") or "refused"), str(answer.get("reason") or "")
        raise RefusedError(response.status_code, code, sentence, reason)
    return answer


def _asked_to_wait(response: httpx.Response) -> float:
    asked = response.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdigit() else 0.0
