"""Several processes send hooks at once: one effect, one attempt, and equal answers."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.api.api_client import NO_TLS
from tests.config.server import Server
from tests.hooks.real.live_project import LiveProject, make_live_project

SENDERS = 8
PUSH = "git push origin HEAD:agent/x"


@pytest.fixture
def project(live_server_process: Server) -> LiveProject:
    return make_live_project(live_server_process, f"hooks-{uuid.uuid4().hex[:8]}")


def build_call(command: str, call_id: str, turn: str | None = "turn-1") -> dict[str, Any]:
    body = {
        "session_id": "one-session",
        "cwd": "/w",
        "prompt_id": turn,
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": command},
        "tool_use_id": call_id,
    }
    return {name: value for name, value in body.items() if value is not None}


def send_at_once(project: LiveProject, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Send every body over its own connection; return the decisions."""

    def send(body: dict[str, Any]) -> dict[str, Any]:
        answer = httpx.post(
            f"{project.server.url}/api/v1/hooks/claude-code",
            json=body,
            headers={"Authorization": f"Bearer {project.token}"},
            verify=NO_TLS,
            timeout=60,
        )
        assert answer.status_code == 200
        output: dict[str, Any] = answer.json()["hookSpecificOutput"]
        return output

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(send, bodies))


def test_one_hook_that_comes_many_times_at_once_is_one_attempt(project: LiveProject) -> None:
    outputs = send_at_once(project, [build_call("ls", "toolu_1")] * SENDERS)
    assert outputs == [{"hookEventName": "PreToolUse"}] * SENDERS
    (effect,) = project.list_effects()
    assert (effect["state"], effect["attempt"]) == ("dispatched", 1)


def test_a_held_call_that_comes_many_times_at_once_opens_one_request(
    project: LiveProject,
) -> None:
    outputs = send_at_once(project, [build_call(PUSH, "toolu_1")] * SENDERS)
    assert len({json.dumps(output) for output in outputs}) == 1
    assert len(project.agent.get("/gates").json()["items"]) == 1


def test_two_processes_that_continue_one_approved_call_run_it_once(project: LiveProject) -> None:
    send_at_once(project, [build_call(PUSH, "toolu_1")])
    project.rule()
    # After --continue a hook names no prompt, so that these may be different processes.
    outputs = send_at_once(project, [build_call(PUSH, "toolu_1", None)] * SENDERS)
    decisions = [output["permissionDecision"] for output in outputs]
    assert sorted(decisions) == ["allow"] + ["deny"] * (SENDERS - 1)
    (effect,) = project.list_effects()
    assert effect["attempt"] == 1


def test_new_ids_of_one_approved_call_run_it_once(project: LiveProject) -> None:
    send_at_once(project, [build_call(PUSH, "toolu_1")])
    project.rule()
    bodies = [build_call(PUSH, f"toolu_{n}", f"turn-{n}") for n in range(2, 2 + SENDERS)]
    decisions = [output["permissionDecision"] for output in send_at_once(project, bodies)]
    assert sorted(decisions) == ["allow"] + ["deny"] * (SENDERS - 1)
    assert len(project.list_effects()) == 1


def test_a_body_of_20_mb_is_answered(project: LiveProject) -> None:
    body = build_call("cat big", "toolu_1")
    send_at_once(project, [body])
    report = body | {
        "hook_event_name": "PostToolUse",
        "tool_response": {"stdout": "0123456789" * 2_000_000},
    }
    answer = httpx.post(
        f"{project.server.url}/api/v1/hooks/claude-code",
        json=report,
        headers={"Authorization": f"Bearer {project.token}"},
        verify=NO_TLS,
        timeout=60,
    )
    assert (answer.status_code, answer.json()) == (200, {})
    assert project.list_effects()[0]["outcome"] == "ok"


def test_a_stranger_with_a_large_body_is_denied(project: LiveProject) -> None:
    answer = httpx.post(
        f"{project.server.url}/api/v1/hooks/claude-code",
        json=build_call("x" * 100_000, "toolu_1"),
        headers={"Authorization": "Bearer nonsense"},
        verify=NO_TLS,
        timeout=60,
    )
    assert answer.status_code == 200
    assert answer.json()["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_chunks_are_taken(project: LiveProject) -> None:
    content = json.dumps(build_call("ls", "toolu_1")).encode()

    def split() -> Any:
        yield content[:10]
        yield content[10:]

    answer = httpx.post(
        f"{project.server.url}/api/v1/hooks/claude-code",
        content=split(),
        headers={
            "Authorization": f"Bearer {project.token}",
            "Content-Type": "application/json",
        },
        verify=NO_TLS,
        timeout=60,
    )
    assert answer.json() == {"hookSpecificOutput": {"hookEventName": "PreToolUse"}}
