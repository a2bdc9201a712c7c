"""A client of the real `codex app-server` behind `gatebook codex-approvals`."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.hooks.real.installed_agents import ROOT, WITHIN_S, find_agent
from tests.hooks.real.scripted_models import ScriptedModel

_CONFIG: Final = """
model = "gpt-5.1-codex"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{address}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
"""


class AppServerClient:
    """What an editor is to Codex: starts it, begins a turn, and reads what happens."""

    def __init__(self, folder: Path, model: ScriptedModel, url: str, token: str) -> None:
        self.program = find_agent("codex")
        self.model = model
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(exist_ok=True)
        (self.home / "config.toml").write_text(_CONFIG.format(address=model.address))
        self.environment: dict[str, str] = {"GATEBOOK_URL": url, "GATEBOOK_TOKEN": token}
        self.options: list[str] = []
        self.command = ["--", str(self.program), "app-server"]
        self.thread = ""
        self.messages: list[dict[str, Any]] = []
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()

    def start(self, **begin: Any) -> None:
        """Start proxy and Codex, and begin or continue the thread."""
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "gatebook_client", "codex-approvals", *self.options),
                *self.command,
            ],
            cwd=self.work,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT / "client"),
                "HOME": str(self.home),
                "CODEX_HOME": str(self.home),
                "SCRIPTED_KEY": "k",
                **self.environment,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._answers = queue.Queue()
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        self.request("initialize", {"clientInfo": {"name": "tests", "version": "0"}})
        self.send({"method": "initialized"})
        parameters = {"cwd": str(self.work), "sandbox": "danger-full-access", **begin}
        if self.thread:
            self.request("thread/resume", parameters | {"threadId": self.thread})
        else:
            self.thread = self.request("thread/start", parameters)["thread"]["id"]

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            self.messages.append(message)
            if "method" not in message:
                self._answers.put(message)

    def send(self, message: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return its result."""
        identity = f"{method} {len(self.messages)}"
        self.send({"id": identity, "method": method, "params": params})
        while True:
            answer = self._answers.get(timeout=WITHIN_S)
            if answer["id"] == identity:
                assert "result" in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def begin_turn(self, text: str = "do it", **more: Any) -> None:
        words = [{"type": "text", "text": text}]
        self.request("turn/start", {"threadId": self.thread, "input": words, **more})

    def await_turn(self) -> None:
        """Wait until the turn that was begun last ends."""
        self.wait_until(lambda: self.count("turn/completed") == self.count("turn/started"))

    def run_turn(self, text: str = "do it", **more: Any) -> None:
        ended = self.count("turn/completed")
        self.begin_turn(text, **more)
        self.wait_until(lambda: self.count("turn/completed") > ended)

    def wait_until(self, when: Callable[[], bool]) -> None:
        until = time.monotonic() + WITHIN_S
        while not when():
            assert time.monotonic() < until, self.messages[-5:]
            time.sleep(0.02)

    def count(self, method: str) -> int:
        return sum(message.get("method") == method for message in self.messages)

    def list_warnings(self) -> list[str]:
        """Return what the user of the client reads."""
        return [
            message["params"]["message"]
            for message in self.messages
            if message.get("method") == "warning"
        ]

    def list_statuses(self) -> list[str]:
        """Return how the calls of the model ended, as Codex says it."""
        items = [
            message["params"]["item"]
            for message in self.messages
            if message.get("method") == "item/completed"
        ]
        return [item["status"] for item in items if "status" in item]

    def list_texts(self) -> list[str]:
        """Return the user's texts that the model got in its newest request."""
        return [
            part["text"]
            for item in self.model.requests[-1]["input"]
            if item.get("role") == "user"
            for part in item["content"]
        ]

    def list_pushes(self) -> list[str]:
        file = self.work / "pushed"
        return file.read_text().splitlines() if file.exists() else []

    def kill(self, *, proxy: bool) -> None:
        """Kill the proxy alone, or Codex alone, with SIGKILL."""
        assert self._process is not None
        if proxy:
            self._process.kill()
        else:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
            os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
        self._process.wait(timeout=WITHIN_S) if proxy else self.end()

    def end(self) -> int:
        """Close the connection, as an editor that ends, and return the exit code."""
        if self._process is None:
            return 0
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        return self._process.wait(timeout=WITHIN_S)

    def close(self) -> None:
        """Kill what still runs, with everything that it started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=WITHIN_S)
