"""The real Codex and Gemini CLI with the hooks of `gatebook connect`: what fails stays closed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gatebook_client import connections
from gatebook_client.agent_settings import AGENT_SETTINGS, add_hooks, build_groups

from tests.client.hook_server import HookServer, serve_hooks
from tests.hooks.real.installed_agents import WITHIN_S, find_agent
from tests.hooks.real.scripted_models import ScriptedModel, Step, ToolCall

pytestmark = pytest.mark.once
TOKEN = "gbk_abcdefgh_" + "x" * 43
COMMAND = "touch executed"
CODEX = """
model = "gpt-5.1-codex"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.scripted]
name = "scripted"
base_url = "{address}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
"""
FAILURES = ["held", "error", "not understood", "cannot start", "no connection"]


class Place:
    """A home and a folder for one run, with the hooks of `gatebook connect`."""

    def __init__(self, folder: Path, server: HookServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.server = server
        for name in ("CODEX_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(self.home))
        connections.store_connection("default", server.url, TOKEN)

    def write_settings(self, agent: str, failure: str, **more: Any) -> None:
        settings = AGENT_SETTINGS[agent]
        text = add_hooks("", build_groups(settings, "default", portable=False))
        if failure == "cannot start":
            text = text.replace(sys.executable, "/nowhere/python")
        if failure == "no connection":
            text = text.replace("--connection default", "--connection missing")
        path = settings.locate_file(None)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(json.loads(text) | more))

    def answer(self, failure: str, answer: dict[str, Any]) -> None:
        self.server.answer = json.dumps({} if failure == "not understood" else answer).encode()
        self.server.status = 500 if failure == "error" else 200

    def run(self, *words: str, **environment: str) -> str:
        done = subprocess.run(
            words,
            cwd=self.work,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def has_executed(self) -> bool:
        return (self.work / "executed").exists()


def run_codex(place: Place, failure: str) -> str:
    place.write_settings("codex", failure)
    decision = "allow" if failure == "permitted" else "deny"
    output = {"hookEventName": "PreToolUse", "permissionDecision": decision}
    if decision == "deny":
        output["permissionDecisionReason"] = "e_1 waits"
    place.answer(failure, {"hookSpecificOutput": output})
    steps = [Step(calls=[ToolCall("exec_command", {"cmd": COMMAND})]), Step("done")]
    with ScriptedModel(steps) as model:
        text = CODEX.format(address=model.address)
        (place.home / ".codex" / "config.toml").write_text(text)
        words = ("exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", "do it")
        return place.run(str(find_agent("codex")), *words, SCRIPTED_KEY="k")


def run_gemini(place: Place, failure: str) -> str:
    auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    place.write_settings("gemini", failure, **auth)
    decision = "allow" if failure == "permitted" else "deny"
    place.answer(failure, {"decision": decision, "reason": "e_1 waits"})
    call = {"name": "run_shell_command", "args": {"command": COMMAND, "description": "mark"}}
    parts: list[dict[str, Any]] = [{"functionCall": call}, {"text": "done"}, {"text": "done"}]
    lines = [
        {
            "method": "generateContentStream",
            "response": [
                {
                    "candidates": [
                        {
                            "content": {"role": "model", "parts": [part]},
                            "finishReason": "STOP",
                            "index": 0,
                        }
                    ],
                    "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 2},
                }
            ],
        }
        for part in parts
    ]
    responses = place.home / "responses"
    responses.write_text("\n".join(json.dumps(line) for line in lines))
    words = ("--fake-responses", str(responses), "-m", "gemini-2.5-flash", "--yolo", "-p", "do it")
    environment = {"GEMINI_API_KEY": "k", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return place.run(str(find_agent("gemini")), *words, **environment)


RUN = {"codex": run_codex, "gemini": run_gemini}


@pytest.mark.parametrize("agent", list(RUN))
@pytest.mark.parametrize("failure", FAILURES)
def test_whatever_fails_the_call_is_not_executed(
    agent: str, failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_agent(agent)
    with serve_hooks() as server:
        (server.only_event,) = AGENT_SETTINGS[agent].gate_events
        place = Place(tmp_path, server, monkeypatch)
        RUN[agent](place, failure)
        events = [body["hook_event_name"] for body in server.bodies()]
    assert not place.has_executed
    if failure in ("held", "error", "not understood"):
        assert server.only_event in events


@pytest.mark.parametrize("agent", list(RUN))
def test_a_permitted_call_is_executed_and_reported(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_agent(agent)
    with serve_hooks() as server:
        place = Place(tmp_path, server, monkeypatch)
        RUN[agent](place, "permitted")
        events = [body["hook_event_name"] for body in server.bodies()]
    assert place.has_executed
    (gate,) = AGENT_SETTINGS[agent].gate_events
    after = {"codex": "PostToolUse", "gemini": "AfterTool"}[agent]
    assert events.index(gate) < events.index(after)
