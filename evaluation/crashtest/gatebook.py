"""Gatebook as a substrate: the HTTP interface and nothing else.

The keys of commands are made of the step and the attempt, so a new process sends the very keys of
the one before: the hardest case for a server that must not repeat a grant to another process.
"""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from evaluation.crashtest.domain import Refused, Release, Step, Verdict
from evaluation.crashtest.remote import Wire

LOST: Final = 599  # the rig's own status: the server fell and no answer came
MOST_TRIES: Final = 4


class Unexpected(Exception):
    """The server answered something that the protocol does not foresee: a finding."""


@dataclass
class Api:
    """The server as an agent's process sees it. What is lost is asked again under the same key."""

    port: int
    token: str
    headers: dict[str, str]  # sent with every request: the mutant under trial
    ask_next: Callable[[str], dict[str, str]] = (
        lambda _path: {}
    )  # headers of one request: where the server is to fall
    raise_again: Callable[[], None] | None = None  # starts a server that fell

    def __post_init__(self) -> None:
        self._wire = Wire(self.port)

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Read."""
        return self.ask("GET", path, None, "")

    def post(self, path: str, body: Any, key: str) -> tuple[int, dict[str, Any]]:
        """Command."""
        return self.ask("POST", path, body, key)

    def ask(self, method: str, path: str, body: Any, key: str) -> tuple[int, dict[str, Any]]:
        """Send, and send again while the answer is lost."""
        headers = {"Authorization": f"Bearer {self.token}", **self.headers}
        content = None
        if body is not None:
            content, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        if key:
            headers["Idempotency-Key"] = key
        special = self.ask_next(f"{method} {path}")
        for _ in range(MOST_TRIES):
            try:
                status, answer = self._wire.ask(
                    method, f"/api/v1{path}", content, {**headers, **special}
                )
            except OSError:
                status, answer = LOST, b""
                if self.raise_again is not None:
                    self.raise_again()
            if status not in (LOST, 503):
                if status >= 500:
                    raise Unexpected(f"{method} {path}: {status} {answer[:300]!r}")
                return status, json.loads(answer or b"{}")
            special = {}
        raise Unexpected(f"{method} {path}: no answer")


class Gatebook:
    """One process of an agent whose book is Gatebook."""

    def __init__(self, api: Api, session: str, *, epoch: int | None = None) -> None:
        self._api, self._session = api, session
        self._keys = (
            session if epoch is None else f"{session}-{epoch}"
        )  # another epoch is another command
        self._fenced = {} if epoch is None else {"lease_epoch": epoch}
        self.process = secrets.token_hex(8)  # made at the start and kept nowhere
        self._id = ""
        self._ids: dict[str, str] = {}
        self._digests: dict[str, str] = {}

    def open(self) -> None:
        status, said = self._api.post("/sessions", {"key": self._session}, f"{self._keys}-open")
        _expect(status in (200, 201), "open", status, said)
        self._id = str(said["id"])

    def safe(self) -> bool | None:
        status, said = self._api.get(f"/sessions/{self._id}/resume?process={self.process}")
        if status == 404:
            return None
        _expect(status == 200, "resume", status, said)
        return bool(said["safe"])

    def look(self, step: Step) -> Verdict:
        if step.key in self._ids:
            return self._verdict(step)
        said = self._plan(step, f"{self._keys}-{step.key}-plan")
        if said["answer"] == "proceed" and said["state"] == "planned":
            return Verdict(
                "execute", "NOT_DISPATCHED", "2", view="planned", attempt=said.get("attempt") or 0
            )
        return self._verdict(step)

    def release(self, step: Step, verdict: Verdict) -> Release:
        body: dict[str, Any] = {
            "process": self.process,
            "intent_digest": self._digests[step.key],
            **self._fenced,
        }
        if step.case.preconditions:
            body["preconditions"] = {"etag": "7"}
        if verdict.needs_permission:
            said = self._plan(step, f"{self._keys}-{step.key}-plan-{verdict.attempt + 1}")
            if said["answer"] != "proceed":
                raise Refused(said)
        if verdict.attempt:
            body["replays"] = verdict.attempt
        key = f"{self._keys}-{step.key}-dispatch-{verdict.attempt + 1}"
        status, said = self._api.post(f"/effects/{self._ids[step.key]}/dispatch", body, key)
        if status == 409 or (status == 422 and said["code"] == "key_reuse"):
            raise Refused(said)
        _expect(status == 200, "dispatch", status, said)
        return Release(said["attempt"], said["remote_key"])

    def settled(self, step: Step, release: Release, reference: str) -> None:
        body = {
            "attempt": release.attempt,
            "outcome": "ok",
            "external_reference": reference,
            **self._fenced,
        }
        key = f"{self._keys}-{step.key}-ack-{release.attempt}"
        status, said = self._api.post(f"/effects/{self._ids[step.key]}/acknowledge", body, key)
        _expect(status in (200, 202), "acknowledge", status, said)

    def failed(self, step: Step, release: Release, reason: str) -> None:
        body = {"attempt": release.attempt, "reason": reason, **self._fenced}
        key = f"{self._keys}-{step.key}-fail-{release.attempt}"
        status, said = self._api.post(f"/effects/{self._ids[step.key]}/fail", body, key)
        _expect(status in (200, 202), "fail", status, said)

    def probed(self, step: Step, verdict: Verdict, reference: str | None, began_us: int) -> None:
        body: dict[str, Any] = {
            "attempt": verdict.attempt,
            "result": "hit" if reference else "miss",
            "began_us": began_us,
            **self._fenced,
        }
        if reference:
            body["external_reference"] = reference
        key = f"{self._keys}-{step.key}-probe-{secrets.token_hex(6)}"
        status, said = self._api.post(f"/effects/{self._ids[step.key]}/probe", body, key)
        _expect(status in (200, 201, 202), "probe", status, said)

    def undo(self, step: Step, undone: Step) -> Verdict:
        undo = {"tool": undone.case.tool, "arguments": {"undo": step.name}}
        body = {"effect_key": undone.key, **undo, **self._fenced}
        path = f"/effects/{self._ids[step.key]}/compensate"
        status, said = self._api.post(path, body, f"{self._keys}-{undone.key}-plan")
        _expect(status in (200, 201), "compensate", status, said)
        self._remember(undone, said)
        if said["answer"] == "proceed" and said["state"] == "planned":
            return Verdict("execute", "NOT_DISPATCHED", "2")
        return self._verdict(undone)

    def gate(self, step: Step) -> str:
        """The open gate of a step that waits for people; empty where it waits for nobody."""
        status, said = self._api.get(f"/effects/{self._ids[step.key]}")
        _expect(status == 200, "effect", status, said)
        return str(said["gate"]["id"]) if said["permission"] == "pending" else ""

    def checkpoint(self, summary: dict[str, Any]) -> None:
        path, key = f"/sessions/{self._id}/checkpoints", f"{self._keys}-checkpoint-{self.process}"
        status, said = self._api.post(path, {"state": summary, **self._fenced}, key)
        _expect(status == 201, "checkpoint", status, said)

    def _plan(self, step: Step, key: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "session": self._session,
            "effect_key": step.key,
            "tool": step.case.tool,
            "arguments": {"step": step.key},
            **self._fenced,
        }
        if step.case.preconditions:
            body["preconditions"] = {"etag": "7"}
        status, said = self._api.post("/effects", body, key)
        _expect(status in (200, 201), "plan", status, said)
        self._remember(step, said)
        return said

    def _remember(self, step: Step, said: dict[str, Any]) -> None:
        self._ids[step.key], self._digests[step.key] = said["id"], said["intent_digest"]

    def _verdict(self, step: Step) -> Verdict:
        status, said = self._api.get(
            f"/effects/{self._ids[step.key]}/verdict?process={self.process}"
        )
        _expect(status == 200, "verdict", status, said)
        effect = said.get("effect") or {}
        return Verdict(
            said["verdict"],
            said["reason"],
            str(said.get("row") or ""),
            said.get("until_us"),
            said.get("attempt") or effect.get("attempt") or 0,
            said.get("remote_key")
            or next((one["remote_key"] for one in said.get("in_doubt") or []), ""),
            bool(said.get("needs_permission")),
            f"{effect.get('state')} {effect.get('outcome')} {said.get('row')}",
        )


def _expect(right: bool, what: str, status: int, said: Any) -> None:
    if not right:
        raise Unexpected(f"{what} was answered {status}: {json.dumps(said)[:600]}")
