"""Gatebook as a substrate, over HTTP only.

The keys of commands are made of the step and the attempt, so a new process sends the same keys as
its predecessor. That is the hardest case for a server that must not repeat a grant to another
process.
"""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from evaluation.crashtest.domain import Refused, Release, Step, Verdict
from evaluation.crashtest.remote import Wire

LOST: Final = 599  # the rig's own status: the server crashed and no answer came
MOST_TRIES: Final = 4


class Unexpected(Exception):
    """The server answered against the protocol: a finding."""


@dataclass
class Api:
    """The server as an agent's process sees it. Lost requests are sent again with the same key."""

    port: int
    token: str
    headers: dict[str, str]  # sent with every request: the mutant under trial
    ask_next: Callable[[str], dict[str, str]] = (
        lambda _path: {}
    )  # headers of one request: where the server crashes
    restart_server: Callable[[], None] | None = None  # starts a server that crashed

    def __post_init__(self) -> None:
        self._wire = Wire(self.port)

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Send a GET request."""
        return self.ask("GET", path, None, "")

    def post(self, path: str, body: Any, key: str) -> tuple[int, dict[str, Any]]:
        """Send a command."""
        return self.ask("POST", path, body, key)

    def ask(self, method: str, path: str, body: Any, key: str) -> tuple[int, dict[str, Any]]:
        """Send a request, again while its answer is lost."""
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
                if self.restart_server is not None:
                    self.restart_server()
            if status not in (LOST, 503):
                if status >= 500:
                    raise Unexpected(f"{method} {path}: {status} {answer[:300]!r}")
                return status, json.loads(answer or b"{}")
            special = {}
        raise Unexpected(f"{method} {path}: no answer")


class Gatebook:
    """One process of an agent that uses Gatebook."""

    def __init__(self, api: Api, session: str, *, epoch: int | None = None) -> None:
        self._api, self._session = api, session
        self._keys = (
            session if epoch is None else f"{session}-{epoch}"
        )  # commands of different epochs have different keys
        self._lease_fields = {} if epoch is None else {"lease_epoch": epoch}
        self.process = secrets.token_hex(8)  # new for each process and not stored
        self._id = ""
        self._ids: dict[str, str] = {}
        self._digests: dict[str, str] = {}

    def open(self) -> None:
        status, reply = self._api.post("/sessions", {"key": self._session}, f"{self._keys}-open")
        _require(status in (200, 201), "open", status, reply)
        self._id = str(reply["id"])

    def can_resume(self) -> bool | None:
        status, reply = self._api.get(f"/sessions/{self._id}/resume?process={self.process}")
        if status == 404:
            return None
        _require(status == 200, "resume", status, reply)
        return bool(reply["safe"])

    def get_verdict(self, step: Step) -> Verdict:
        if step.key in self._ids:
            return self._fetch_verdict(step)
        effect = self._plan(step, f"{self._keys}-{step.key}-plan")
        if effect["answer"] == "proceed" and effect["state"] == "planned":
            return Verdict(
                "execute", "NOT_DISPATCHED", "2", view="planned", attempt=effect.get("attempt") or 0
            )
        return self._fetch_verdict(step)

    def dispatch(self, step: Step, verdict: Verdict) -> Release:
        body: dict[str, Any] = {
            "process": self.process,
            "intent_digest": self._digests[step.key],
            **self._lease_fields,
        }
        if step.case.preconditions:
            body["preconditions"] = {"etag": "7"}
        if verdict.needs_permission:
            reply = self._plan(step, f"{self._keys}-{step.key}-plan-{verdict.attempt + 1}")
            if reply["answer"] != "proceed":
                raise Refused(reply)
        if verdict.attempt:
            body["replays"] = verdict.attempt
        key = f"{self._keys}-{step.key}-dispatch-{verdict.attempt + 1}"
        status, reply = self._api.post(f"/effects/{self._ids[step.key]}/dispatch", body, key)
        if status == 409 or (status == 422 and reply["code"] == "key_reuse"):
            raise Refused(reply)
        _require(status == 200, "dispatch", status, reply)
        return Release(reply["attempt"], reply["remote_key"])

    def report_success(self, step: Step, release: Release, reference: str) -> None:
        body = {
            "attempt": release.attempt,
            "outcome": "ok",
            "external_reference": reference,
            **self._lease_fields,
        }
        key = f"{self._keys}-{step.key}-ack-{release.attempt}"
        status, reply = self._api.post(f"/effects/{self._ids[step.key]}/acknowledge", body, key)
        _require(status in (200, 202), "acknowledge", status, reply)

    def report_failure(self, step: Step, release: Release, reason: str) -> None:
        body = {"attempt": release.attempt, "reason": reason, **self._lease_fields}
        key = f"{self._keys}-{step.key}-fail-{release.attempt}"
        status, reply = self._api.post(f"/effects/{self._ids[step.key]}/fail", body, key)
        _require(status in (200, 202), "fail", status, reply)

    def report_probe(
        self, step: Step, verdict: Verdict, reference: str | None, began_us: int
    ) -> None:
        body: dict[str, Any] = {
            "attempt": verdict.attempt,
            "result": "hit" if reference else "miss",
            "began_us": began_us,
            **self._lease_fields,
        }
        if reference:
            body["external_reference"] = reference
        key = f"{self._keys}-{step.key}-probe-{secrets.token_hex(6)}"
        status, reply = self._api.post(f"/effects/{self._ids[step.key]}/probe", body, key)
        _require(status in (200, 201, 202), "probe", status, reply)

    def compensate(self, step: Step, undone: Step) -> Verdict:
        undo = {"tool": undone.case.tool, "arguments": {"undo": step.name}}
        body = {"effect_key": undone.key, **undo, **self._lease_fields}
        path = f"/effects/{self._ids[step.key]}/compensate"
        status, effect = self._api.post(path, body, f"{self._keys}-{undone.key}-plan")
        _require(status in (200, 201), "compensate", status, effect)
        self._store_ids(undone, effect)
        if effect["answer"] == "proceed" and effect["state"] == "planned":
            return Verdict("execute", "NOT_DISPATCHED", "2")
        return self._fetch_verdict(undone)

    def find_gate(self, step: Step) -> str:
        """Return the id of the step's pending gate, or an empty string."""
        status, effect = self._api.get(f"/effects/{self._ids[step.key]}")
        _require(status == 200, "effect", status, effect)
        return str(effect["gate"]["id"]) if effect["permission"] == "pending" else ""

    def checkpoint(self, summary: dict[str, Any]) -> None:
        path, key = f"/sessions/{self._id}/checkpoints", f"{self._keys}-checkpoint-{self.process}"
        status, reply = self._api.post(path, {"state": summary, **self._lease_fields}, key)
        _require(status == 201, "checkpoint", status, reply)

    def _plan(self, step: Step, key: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "session": self._session,
            "effect_key": step.key,
            "tool": step.case.tool,
            "arguments": {"step": step.key},
            **self._lease_fields,
        }
        if step.case.preconditions:
            body["preconditions"] = {"etag": "7"}
        status, effect = self._api.post("/effects", body, key)
        _require(status in (200, 201), "plan", status, effect)
        self._store_ids(step, effect)
        return effect

    def _store_ids(self, step: Step, effect: dict[str, Any]) -> None:
        self._ids[step.key], self._digests[step.key] = effect["id"], effect["intent_digest"]

    def _fetch_verdict(self, step: Step) -> Verdict:
        status, reply = self._api.get(
            f"/effects/{self._ids[step.key]}/verdict?process={self.process}"
        )
        _require(status == 200, "verdict", status, reply)
        effect = reply.get("effect") or {}
        return Verdict(
            reply["verdict"],
            reply["reason"],
            str(reply.get("row") or ""),
            reply.get("until_us"),
            reply.get("attempt") or effect.get("attempt") or 0,
            reply.get("remote_key")
            or next((attempt["remote_key"] for attempt in reply.get("in_doubt") or []), ""),
            bool(reply.get("needs_permission")),
            f"{effect.get('state')} {effect.get('outcome')} {reply.get('row')}",
        )


def _require(is_expected: bool, what: str, status: int, reply: Any) -> None:
    if not is_expected:
        raise Unexpected(f"{what} was answered {status}: {json.dumps(reply)[:600]}")
