"""Permissions for the calls of a coding agent that asks a program and waits for the answer.

The call is planned as the agent's hook plans it, waits for people, and is dispatched when it is
permitted. Whatever fails, the call is not permitted. Standard library only.
"""

import json
import re
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from gatebook_client.git_facts import read_git_facts
from gatebook_client.plain_http import RequestFailed, parse_object, send_request

TIMEOUT_S = 20.0
LONG_POLL_S = 45
PAUSE_S = 2.0
PATIENCE_S = 60.0  # how long Gatebook may be away while people are waited for
NOTHING_ENFORCED = (
    "Gatebook enforces no rules in this project, so nothing permits this call. Nothing was"
    " executed. Activate a policy in the mode `enforce`."
)
NO_PERSON = "This call needs the approval of a person, and no rule asks for one."
_HANDLE = re.compile(r"\be_[0-9]{1,18}\b")


class CallDenied(Exception):
    """The call may not run; the text is for the model."""


class WaitsForPeople(CallDenied):
    """People have not decided yet. The request stays in the inbox: ask again for the same call."""


class DoneBefore(CallDenied):
    """The call was done by an earlier process. `result` is what was reported then."""

    def __init__(self, reason: str, outcome: str, result: Any) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.result = result


class CallPermissions:
    """Asks one Gatebook for the calls of one kind of coding agent.

    `agent` is the kind of hooks that are sent, and `program` the name that people see instead.
    `replaces_person`: the agent would ask a person, so that only enforced rules and people can
    permit a call. Otherwise a call also runs where nothing is enforced, and is recorded.
    """

    def __init__(
        self, agent: str, url: str, token: str, *, program: str = "", replaces_person: bool = True
    ) -> None:
        self.path = f"/api/v1/hooks/{agent}"
        self.url = url
        self.token = token
        self.replaces_person = replaces_person
        self.named = {"program": program} if program else {}

    def send_hook(self, hook: dict[str, Any], query: str = "") -> dict[str, Any]:
        """Send a hook and return the answer. Raises RequestFailed, ValueError, CallDenied."""
        status, body = send_request(
            "POST",
            self.url,
            self.path + query,
            token=self.token,
            body=json.dumps(hook).encode(),
            timeout_s=TIMEOUT_S,
        )
        answer = parse_object(body)
        if status != 200 or (not answer and body.strip() != b"{}"):
            raise CallDenied(f"The answer of Gatebook is not understood (HTTP {status}).")
        return answer

    def await_permission(
        self,
        call: dict[str, Any],
        *,
        wait_s: float | None,
        needs_person: bool = False,
        cancelled: threading.Event | None = None,
        report_wait: Callable[[str], object] = str,
    ) -> dict[str, Any] | None:
        """Plan and dispatch a call, after people decided where they must.

        `call` is a PreToolUse hook without its name. `wait_s` limits the wait for people.
        `report_wait` gets a sentence at every long poll. `needs_person`: rules cannot permit it.
        Returns the input that replaces that of the call, if there is one. Raises CallDenied,
        RequestFailed and ValueError: then the call must not run.
        """
        cancelled = threading.Event() if cancelled is None else cancelled
        until = None if wait_s is None else time.monotonic() + wait_s
        hook = {"hook_event_name": "PreToolUse", **call}
        facts = read_git_facts(str(call.get("cwd") or ".")) | self.named
        query = "?permitted=allow" if self.replaces_person and not needs_person else ""
        while True:
            sent = hook | {"gatebook": facts | make_delivery()}
            decision, reason, changed = self._ask(sent, query)
            if decision == "none" and (needs_person or self.replaces_person):
                words = NO_PERSON if needs_person else NOTHING_ENFORCED
                with suppress(RequestFailed, ValueError, CallDenied):  # it counts as begun
                    self.send_hook(sent | {"hook_event_name": "PermissionDenied", "reason": words})
                raise CallDenied(words)
            if decision in ("allow", "none"):
                return changed
            effect = self._find_effect(hook, reason)
            if effect.get("state") == "acknowledged":
                stored = self._get(f"/api/v1/effects/{effect['id']}/result")
                raise DoneBefore(reason, str(stored.get("outcome")), stored.get("result"))
            if effect.get("permission") != "pending":
                raise CallDenied(reason or "Gatebook refuses the call.")
            if until is not None and time.monotonic() >= until:
                raise WaitsForPeople(reason)
            report_wait(f"{effect.get('handle')} waits for approval{_name_page(effect)}")
            if cancelled.is_set():
                raise CallDenied("The request was cancelled.")
            self._await_ruling(effect, until, cancelled)

    def _ask(self, hook: dict[str, Any], query: str) -> tuple[str, str, dict[str, Any] | None]:
        """Return decision, reason and changed input. Raises for what is not understood."""
        output = self.send_hook(hook, query).get("hookSpecificOutput")
        if not isinstance(output, dict) or output.get("hookEventName") != "PreToolUse":
            raise CallDenied("The answer of Gatebook is not understood (HTTP 200).")
        decision = output.get("permissionDecision", "none")
        if decision not in ("allow", "deny", "defer", "none"):
            raise CallDenied(f"The answer of Gatebook is not understood ({decision}).")
        changed = output.get("updatedInput")
        reason = str(output.get("permissionDecisionReason") or "")
        return decision, reason, changed if isinstance(changed, dict) else None

    def _find_effect(self, hook: dict[str, Any], reason: str) -> dict[str, Any]:
        """Return the effect of a call that was denied; empty if it was not planned.

        A call that continues the effect of an earlier call is found by the handle in the reason.
        """
        session = str(hook["session_id"])
        if hook.get("agent_id"):
            session = f"{session}/{hook['agent_id']}"
        call_id = str(hook.get("tool_use_id") or "")
        query = f"session={quote(session, safe='')}&call_id={quote(call_id, safe='')}&limit=1"
        items = self._get(f"/api/v1/effects?{query}").get("items")
        if isinstance(items, list) and items and isinstance(items[0], dict):
            return dict(items[0])
        handle = _HANDLE.search(reason)
        return self._get(f"/api/v1/effects/{handle[0]}") if handle is not None else {}

    def _get(self, path: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        status, body = send_request("GET", self.url, path, token=self.token, timeout_s=timeout_s)
        return parse_object(body) if status == 200 else {}

    def _await_ruling(
        self, effect: dict[str, Any], until: float | None, cancelled: threading.Event
    ) -> None:
        """Wait until people rule on the gate of an effect, for one long poll at most.

        Nothing runs in that time, so Gatebook may be away for a while.
        """
        left_s = (
            LONG_POLL_S if until is None else max(min(LONG_POLL_S, until - time.monotonic()), 0)
        )
        gate = effect.get("gate")
        started = time.monotonic()
        while isinstance(gate, dict) and not cancelled.is_set():
            try:
                path = f"/api/v1/gates/{gate['id']}"
                current = self._get(path)
                if current.get("status") == "pending" and not current.get("stopped"):
                    path += f"?wait={int(left_s)}&since={current.get('version', 0)}"
                    self._get(path, left_s + TIMEOUT_S)
                break
            except RequestFailed:
                if time.monotonic() - started > PATIENCE_S:
                    raise
                cancelled.wait(PAUSE_S)
        if time.monotonic() - started < PAUSE_S:
            cancelled.wait(min(PAUSE_S, left_s))


def build_exit_report(call: dict[str, Any], code: int | None, output: str) -> dict[str, Any]:
    """Return the hook that reports how the command of a call ended; without a code, that it did."""
    if code is not None and code != 0:
        error = f"Exit code {code}\n{output}" if code > 0 else output
        return call | {"hook_event_name": "PostToolUseFailure", "error": error}
    response = {"output": output} if code is None else {"exit_code": code, "output": output}
    return call | {"hook_event_name": "PostToolUse", "tool_response": response}


def make_delivery() -> dict[str, object]:
    """Return what names one delivery of a hook, and when it was sent."""
    return {"delivery": secrets.token_hex(16), "occurred_us": time.time_ns() // 1000}


def _name_page(effect: dict[str, Any]) -> str:
    gate = effect.get("gate")
    page = gate.get("page") if isinstance(gate, dict) else None
    return f" at {page}" if isinstance(page, str) else ""
