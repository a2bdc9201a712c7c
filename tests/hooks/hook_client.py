"""Coding agents as tests play them: hooks over HTTP, and people in the inbox."""

import json
from pathlib import Path
from typing import Any, Final

import httpx

from approvals.models import Gate
from ledger.models import Attempt, Effect
from sessions.models import Session
from tests.api.api_client import Caller
from tests.approvals.confirm_helpers import code_in
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer
from tests.pages.people import PASSWORD

SAMPLES: Final = Path(__file__).with_name("samples")
PUSH: Final = "git push -q origin HEAD:refs/heads/agent/cc && echo pushed"
FIRST_SESSION: Final = "0b6e1c1e-0000-4000-8000-000000000001"
RULES: Final = """
name: agents
rules:
  - id: push
    title: A push
    match: {tools: [git.push]}
    outcome: require
    require: {minimum: 1, rationale: {on: on_deny, minimum_characters: 3}}
  - id: never
    title: A tool that nobody may use
    match: {tools: [mcp__bank__transfer]}
    outcome: deny
  - id: rest
    title: Everything else
    match: {}
    outcome: allow
"""


def read_sample(name: str) -> list[dict[str, Any]]:
    """Return the bodies of a recorded run, in their order."""
    lines = (SAMPLES / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


class HookClient:
    """One coding agent: sends hooks, and reads what Gatebook has recorded."""

    def __init__(self, scenario: InboxScenario, client: str = "claude-code") -> None:
        self.scenario = scenario
        self.path = f"/hooks/{client}"
        self.client = client
        self.session = FIRST_SESSION
        self.turn = "turn-1"

    def send(self, body: dict[str, Any], query: str = "") -> dict[str, Any]:
        """Send one hook and return the answer, which is always a 200."""
        answer = self.send_raw(json.dumps(body).encode(), query)
        assert answer.status_code == 200, answer.text
        parsed: dict[str, Any] = answer.json()
        return parsed

    def send_raw(self, content: bytes, query: str = "") -> httpx.Response:
        return self.scenario.agent.client.post(
            self.path + query, content=content, headers={"Content-Type": "application/json"}
        )

    def build(self, event: str, **fields: Any) -> dict[str, Any]:
        """Return a hook of this client's session and turn."""
        body: dict[str, Any] = {
            "session_id": self.session,
            "cwd": "/home/dev/work",
            "transcript_path": "/home/dev/t.jsonl",
            "permission_mode": "default",
            "hook_event_name": event,
        }
        if self.client == "claude-code":
            body["prompt_id"] = self.turn
        elif self.client == "codex":
            body["turn_id"] = self.turn
        return {name: value for name, value in (body | fields).items() if value is not None}

    def shell(
        self, event: str, command: str, call_id: str = "toolu_1", **more: Any
    ) -> dict[str, Any]:
        """Return a hook about a shell command."""
        fields = {
            "tool_name": "Bash",
            "tool_input": {"command": command, "description": "as the model says"},
            "tool_use_id": call_id,
        }
        return self.build(event, **(fields | more))

    def before(
        self, command: str = PUSH, call_id: str = "toolu_1", query: str = "", **more: Any
    ) -> dict[str, Any]:
        """Send the hook before a shell command; return the decision's part of the answer."""
        output: dict[str, Any] = self.send(
            self.shell("PreToolUse", command, call_id, **more), query
        )["hookSpecificOutput"]
        assert output["hookEventName"] == "PreToolUse"
        return output

    def after(
        self, command: str = PUSH, call_id: str = "toolu_1", stdout: str = "pushed", **more: Any
    ) -> dict[str, Any]:
        """Send the hook after a shell command."""
        response = {"stdout": stdout, "stderr": "", "interrupted": False, "isImage": False}
        return self.send(
            self.shell("PostToolUse", command, call_id, tool_response=response, **more)
        )

    def fail(
        self, error: str, command: str = PUSH, call_id: str = "toolu_1", **more: Any
    ) -> dict[str, Any]:
        """Send the hook after a shell command that failed."""
        return self.send(self.shell("PostToolUseFailure", command, call_id, error=error, **more))

    def rule(self, gate: Gate, answer: str = "approve", **more: str) -> None:
        """Rule on a gate through the real pages."""
        reviewer = Reviewer(self.scenario)
        response = reviewer.answer(gate, answer, all_read="1", **more)
        assert response.status_code == 302, response.content.decode()
        if Gate.objects.get(id=gate.id).status == "pending":
            code = code_in(reviewer.page(response["Location"]))
            response = reviewer.confirm(gate, code=code, password=PASSWORD)
            assert response.status_code == 302, response.content.decode()

    def rule_on_only_gate(self, answer: str = "approve", **more: str) -> Gate:
        """Rule on the only gate that waits, and return it."""
        gate = Gate.objects.get(status="pending")
        self.rule(gate, answer, **more)
        return gate

    @property
    def stored_session(self) -> Session:
        return Session.objects.get(key=self.session)


def make_caller(token: str | None, like: Caller) -> Caller:
    """Return a client with any token, in the transaction of the test."""
    from config.wsgi import application

    caller = Caller(token, app=application)
    caller.client.event_hooks = like.client.event_hooks
    return caller


def list_effects(**conditions: Any) -> list[Effect]:
    """Return the effects in the order of their plans."""
    return list(Effect.objects.filter(**conditions).order_by("opened_position"))


def the_effect(**conditions: Any) -> Effect:
    """Return the only effect."""
    (effect,) = list_effects(**conditions)
    return effect


def count_attempts() -> int:
    return Attempt.objects.count()
