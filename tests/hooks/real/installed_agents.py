"""The real coding agents, which `make test-agents` installs, in a folder and home of their own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.hooks.real.scripted_models import ScriptedModel

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = Path(os.environ.get("GATEBOOK_TEST_AGENTS") or ROOT / ".venv" / "agents")
WITHIN_S: Final = 120
EVENTS: Final = (
    *("PreToolUse", "PostToolUse", "PostToolUseFailure", "SessionEnd", "Stop", "Notification"),
    *("SubagentStart", "SubagentStop", "UserPromptSubmit"),
)


def find_agent(name: str) -> Path:
    """Return the program of a coding agent; skip the test if it is not installed."""
    program = FOLDER / "node_modules" / ".bin" / name
    if not program.exists() or shutil.which("node") is None:
        pytest.skip(f"{name} is not installed in {FOLDER}; `make test-agents` installs it")
    return program


@dataclass
class ClaudeCode:
    """Claude Code in a folder, with a scripted model and HTTP hooks."""

    folder: Path
    model: ScriptedModel
    hook_url: str
    token: str
    query: str = ""
    timeout_s: int = 20
    options: Sequence[str] = ("--allowedTools", "Bash")
    _running: list["subprocess.Popen[str]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.program = find_agent("claude")
        (self.folder / "home").mkdir(parents=True)
        settings = self.work / ".claude"
        settings.mkdir(parents=True)
        hook = {
            "type": "http",
            "url": f"{self.hook_url}/api/v1/hooks/claude-code{self.query}",
            "headers": {"Authorization": "Bearer $GATEBOOK_TOKEN"},
            "allowedEnvVars": ["GATEBOOK_TOKEN"],
            "timeout": self.timeout_s,
        }
        hooks = {event: [{"matcher": "*", "hooks": [hook]}] for event in EVENTS}
        (settings / "settings.json").write_text(json.dumps({"hooks": hooks}))

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start Claude Code without a terminal, as the leader of a process group."""
        process = subprocess.Popen(
            [self.program, "--output-format", "json", *self.options, *arguments],
            cwd=self.work,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder / "home"),
                "ANTHROPIC_BASE_URL": self.model.address,
                "ANTHROPIC_API_KEY": "scripted",
                "GATEBOOK_TOKEN": self.token,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
                "DISABLE_TELEMETRY": "1",
                "DISABLE_ERROR_REPORTING": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._running.append(process)
        return process

    def run(self, *arguments: str) -> dict[str, Any]:
        """Run Claude Code to its end; return its answer."""
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0, output + errors
        answer: dict[str, Any] = json.loads(output)
        return answer

    def prompt(self, text: str = "do it") -> dict[str, Any]:
        return self.run("-p", text)

    def go_on(self, text: str = "") -> dict[str, Any]:
        return self.run("-p", text, "--continue")

    def kill(self, process: "subprocess.Popen[str]", when: Callable[[], bool]) -> None:
        """Kill Claude Code and what it started with SIGKILL, as soon as `when` is true."""
        wait_until(when)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=WITHIN_S)

    def close(self) -> None:
        """Kill what still runs."""
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def list_results(self) -> list[str]:
        """Return the results of calls that the model got in its newest request."""
        messages = self.model.requests[-1]["messages"] if self.model.requests else []
        blocks = [
            block
            for message in messages
            if isinstance(message["content"], list)
            for block in message["content"]
        ]
        return [str(block["content"]) for block in blocks if block.get("type") == "tool_result"]


def wait_until(when: Callable[[], bool]) -> None:
    """Wait until `when` is true."""
    until = time.monotonic() + WITHIN_S
    while not when():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


@dataclass
class Codex:
    """Codex in a folder, with a scripted model and the command `gatebook hook codex`."""

    folder: Path
    model: ScriptedModel
    url: str
    token: str

    def __post_init__(self) -> None:
        self.program = find_agent("codex")
        self.work.mkdir(parents=True)
        home = self.folder / "home"
        home.mkdir()
        hook = self.folder / "hook.sh"
        hook.write_text(f"#!/bin/sh\nexec {sys.executable} -m gatebook_client hook codex\n")
        hook.chmod(0o755)
        command = {"type": "command", "command": str(hook), "timeout": 30}
        events = ("PreToolUse", "PostToolUse", "SessionStart", "UserPromptSubmit", "Stop")
        hooks = {event: [{"matcher": "*", "hooks": [command]}] for event in events}
        (home / "hooks.json").write_text(json.dumps({"hooks": hooks}))
        (home / "config.toml").write_text(
            'model = "gpt-5.1-codex"\nmodel_provider = "scripted"\n'
            '[model_providers.scripted]\nname = "scripted"\nwire_api = "responses"\n'
            f'base_url = "{self.model.address}/v1"\nenv_key = "OPENAI_API_KEY"\n'
        )

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def run(self, *arguments: str) -> str:
        """Run `codex exec` to its end; return its stream of JSON lines."""
        completed = subprocess.run(
            [
                *(str(self.program), "exec", *arguments, "--json", "--skip-git-repo-check"),
                "--dangerously-bypass-approvals-and-sandbox",
                "--dangerously-bypass-hook-trust",
            ],
            cwd=self.work,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT / "client"),
                "HOME": str(self.folder / "home"),
                "CODEX_HOME": str(self.folder / "home"),
                "OPENAI_API_KEY": "scripted",
                "GATEBOOK_URL": self.url,
                "GATEBOOK_TOKEN": self.token,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return completed.stdout

    def list_results(self) -> list[str]:
        """Return the results of calls that the model got in its newest request."""
        items = self.model.requests[-1]["input"] if self.model.requests else []
        return [str(item["output"]) for item in items if item["type"] == "function_call_output"]
