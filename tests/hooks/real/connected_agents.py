"""The real coding agents, each in a home of its own and set up by `gatebook connect`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.hooks.real.installed_agents import ROOT, WITHIN_S, find_agent, wait_until
from tests.hooks.real.live_project import LiveProject
from tests.hooks.real.scripted_models import ScriptedModel, Step, ToolCall

_GATEBOOK: Final = """#!/bin/sh
export PYTHONPATH={client}
exec {python} -m gatebook_client "$@"
"""
_CODEX: Final = """
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
# Each line of `done` is one call that was executed; the calls of a `slow` folder take a while.
PROGRAM: Final = '#!/bin/sh\necho "$@" >> done\n[ -e slow ] && sleep 30\necho ready\n'


class QueuedModel(ScriptedModel):
    """A model that makes the calls of a queue, whatever the conversation has."""

    queue: Sequence[Step] = ()

    def choose_step(self, answered: int) -> Step:
        """Return the next step of the queue."""
        step, *self.queue = (*self.queue, Step("ended"))
        return step


class ConnectedAgent:
    """One coding agent: its model makes shell calls, and its hooks ask Gatebook."""

    name = ""
    program = ""

    def __init__(self, project: LiveProject, folder: Path, model: QueuedModel) -> None:
        self.project, self.model = project, model
        self.path = find_agent(self.program)
        self.home, self.work, programs = folder / "home", folder / "work", folder / "bin"
        for created in (self.home, self.work, programs):
            created.mkdir(parents=True)
        text = _GATEBOOK.format(client=ROOT / "client", python=sys.executable)
        for program, content in (
            (programs / "gatebook", text),
            (self.work / "git", PROGRAM),
            (self.work / "npm", PROGRAM),
        ):
            program.write_text(content)
            program.chmod(0o755)
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.home),
        }
        self._running: list[subprocess.Popen[str]] = []
        self.output = ""
        self.prepare()

    def prepare(self) -> None:
        """Write the settings that the agent needs besides the hooks."""

    def connect(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run `gatebook connect` as at the shell of its user."""
        return subprocess.run(
            ["gatebook", "connect", self.name, "--yes", *words],
            cwd=self.work,
            env={
                **self.environment,
                "GATEBOOK_URL": self.project.server.url,
                "GATEBOOK_TOKEN": self.project.token,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    def move(self, url: str) -> None:
        """Let the stored connection point to another address."""
        (path,) = self.home.rglob("connections/default.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"url": url}))

    def build_command(self, prompt: str, *, resumes: bool, commands: tuple[str, ...]) -> list[str]:
        """Return the command of one run."""
        raise NotImplementedError

    def start(self, *commands: str, resumes: bool = True) -> "subprocess.Popen[str]":
        """Start a run in which the model makes these shell calls, one after another."""
        process = subprocess.Popen(
            self.build_command("do it", resumes=resumes, commands=commands),
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._running.append(process)
        return process

    def run(self, *commands: str, resumes: bool = True) -> None:
        """Run the agent to its end."""
        process = self.start(*commands, resumes=resumes)
        self.output, errors = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0, self.output + errors

    def kill(self, process: "subprocess.Popen[str]", when: Callable[[], bool]) -> None:
        """Kill the agent and its process group with SIGKILL, as soon as `when` is true."""
        wait_until(when)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=WITHIN_S)

    def list_results(self) -> list[str]:
        """Return what the model got from its calls in the last run."""
        raise NotImplementedError

    def list_done(self) -> list[str]:
        """Return the calls that were executed."""
        file = self.work / "done"
        return file.read_text().splitlines() if file.exists() else []

    def close(self) -> None:
        """Kill what still runs."""
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


class ConnectedClaudeCode(ConnectedAgent):
    """Claude Code without a terminal."""

    name, program = "claude-code", "claude"

    def prepare(self) -> None:
        self.environment |= {
            "ANTHROPIC_BASE_URL": self.model.address,
            "ANTHROPIC_API_KEY": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
        }

    def build_command(self, prompt: str, *, resumes: bool, commands: tuple[str, ...]) -> list[str]:
        self.model.queue = [
            Step(calls=[ToolCall("Bash", {"command": command, "description": "a step"})])
            for command in commands
        ]
        words = ["--output-format", "json", "--allowedTools", "Bash", "-p", prompt]
        return [str(self.path), *words, *(["--continue"] if resumes else [])]

    def list_results(self) -> list[str]:
        return [
            str(block["content"])
            for message in self.model.requests[-1]["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block.get("type") == "tool_result"
        ]


class ConnectedCodex(ConnectedAgent):
    """`codex exec`, which trusts the hooks as automation does that checks them itself."""

    name, program = "codex", "codex"

    def prepare(self) -> None:
        folder = self.home / ".codex"
        folder.mkdir()
        (folder / "config.toml").write_text(_CODEX.format(address=self.model.address))
        self.environment["SCRIPTED_KEY"] = "k"

    def build_command(self, prompt: str, *, resumes: bool, commands: tuple[str, ...]) -> list[str]:
        self.model.queue = [
            Step(calls=[ToolCall("exec_command", {"cmd": command})]) for command in commands
        ]
        options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"]
        words = ["exec", *(["resume", "--last"] if resumes else []), *options, prompt]
        return [str(self.path), *words]

    def list_results(self) -> list[str]:
        items = self.model.requests[-1]["input"]
        return [str(item["output"]) for item in items if item["type"] == "function_call_output"]


class ConnectedGemini(ConnectedAgent):
    """Gemini CLI, which reads the answers of its model from a file."""

    name, program = "gemini", "gemini"

    def prepare(self) -> None:
        folder = self.home / ".gemini"
        folder.mkdir()
        settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        (folder / "settings.json").write_text(json.dumps(settings))
        self.environment |= {"GEMINI_API_KEY": "k", "GEMINI_CLI_TRUST_WORKSPACE": "true"}

    def build_command(self, prompt: str, *, resumes: bool, commands: tuple[str, ...]) -> list[str]:
        parts: list[dict[str, Any]] = [
            {"functionCall": {"name": "run_shell_command", "args": {"command": command}}}
            for command in commands
        ]
        responses = self.home / "responses"
        lines = [build_response(part) for part in [*parts, {"text": "ended"}, {"text": "ended"}]]
        responses.write_text("\n".join(json.dumps(line) for line in lines))
        words = ["--fake-responses", str(responses), "-m", "gemini-2.5-flash", "--yolo"]
        words += ["-o", "stream-json", *(["--resume", "latest"] if resumes else []), "-p", prompt]
        return [str(self.path), *words]

    def list_results(self) -> list[str]:
        lines = [line for line in self.output.splitlines() if line.startswith("{")]
        events = [json.loads(line) for line in lines]
        return [json.dumps(event) for event in events if event["type"] == "tool_result"]


def build_response(part: dict[str, Any]) -> dict[str, Any]:
    """Return one line of the file of answers."""
    candidate = {
        "content": {"role": "model", "parts": [part]},
        "finishReason": "STOP",
        "index": 0,
    }
    usage = {"promptTokenCount": 1, "totalTokenCount": 2}
    return {
        "method": "generateContentStream",
        "response": [{"candidates": [candidate], "usageMetadata": usage}],
    }


AGENTS: Final[dict[str, type[ConnectedAgent]]] = {
    "claude-code": ConnectedClaudeCode,
    "codex": ConnectedCodex,
    "gemini": ConnectedGemini,
}


@contextmanager
def open_agent(name: str, project: LiveProject, folder: Path) -> Iterator[ConnectedAgent]:
    """Set a coding agent up, and kill what it leaves."""
    model = QueuedModel([])
    with model:
        agent = AGENTS[name](project, folder / name, model)
        try:
            yield agent
        finally:
            agent.close()
