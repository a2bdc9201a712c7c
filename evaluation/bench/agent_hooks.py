"""Hooks of coding agents: the time that a tool call waits for Gatebook where nothing is held.

A tool call is a PreToolUse and its PostToolUse, sent as Claude Code sends its HTTP hooks, under
rules that hold pushes alone. Both are sent on one connection, or each on a new one. In
the same round, as many requests go to an endpoint that only checks the token (`GET /limits`). The
command `gatebook hook` is started as a coding agent starts it, and compared with a Python that does nothing.
"""

import http.client
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from evaluation.bench import clients
from evaluation.bench.clients import Timings, Work
from evaluation.bench.installation import ROOT, Server
from evaluation.bench.report import Report, percentile
from evaluation.bench.workload import make_text

BAR_P50_MS: Final = 15.0  # per tool call
BAR_P99_MS: Final = 40.0
BAR_START: Final = 3.0  # × an empty Python
AGENT: Final = "coder"
CALLS_OF_SESSION: Final = 100
RULES: Final = """
name: hooks
rules:
  - {id: pushes, title: A push, match: {tools: [git.push]}, outcome: require}
  - {id: rest, title: Everything else, match: {tools: ["*"]}, outcome: allow}
"""
_PATH: Final = "/api/v1/hooks/claude-code"
_EMPTY: Final = "/api/v1/limits"
_COMMANDS: Final = (
    "ls -la src",
    "python -m pytest -q tests/test_cart.py",
    "git status --short && git diff --stat",
    "grep -rn 'total' src | head -20",
)


def measure(report: Report, server: Server, *, rounds: int, calls: int, starts: int) -> None:
    """Measure `calls` tool calls and `starts` starts of the command in each round."""
    installation = server.installation
    vendor = installation.vendor
    rules = installation.folder / "hook_rules.yaml"
    rules.write_text(RULES)
    installation.manage("load_policies", str(rules), "--activate", "enforce")
    token = installation.issue_token(AGENT)
    seen: dict[str, list[float]] = {}
    for number in range(-1, rounds):  # the first round warms up
        sys.stderr.write(f"{vendor}: hooks, round {number + 1} of {rounds}\n")
        figures = _measure_calls(server, token, f"r{number}", calls)
        if starts:
            figures |= _measure_starts(server, token, f"r{number}", starts)
        for name, value in figures.items() if number >= 0 else ():
            seen.setdefault(name, []).append(value)
    bars = {
        "one connection: p50": BAR_P50_MS,
        "one connection: p99": BAR_P99_MS,
        "new connections: p50": BAR_P50_MS,
        "new connections: p99": BAR_P99_MS,
    }
    for name, values in seen.items():
        bar = bars.get(name) if vendor == "sqlite" else None
        if name == "command: × an empty Python":
            bar = BAR_START
        report.add(vendor, f"hooks, {name}", _get_unit(name), values, bar=bar)


def _get_unit(name: str) -> str:
    if "×" in name:
        return "×"
    if name.startswith("command"):
        return "ms per start"
    return "CPU-ms per call" if name.endswith("CPU") else "ms per call"


def _measure_calls(server: Server, token: str, name: str, calls: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    for mode, keeps in (("one connection", True), ("new connections", False)):
        kinds = {
            "": post_tool_calls(server.port, token, f"{name}-{keeps}", calls, keeps=keeps),
            "empty endpoint, ": ask_limits(server.port, token, calls, keeps=keeps),
        }
        for kind, work in kinds.items():
            before = server.cpu_s()
            spent = clients.run_together([work]).all
            figures[f"{kind}{mode}: p50"] = 1000 * percentile(spent, 0.5)
            figures[f"{kind}{mode}: p99"] = 1000 * percentile(spent, 0.99)
            figures[f"{kind}{mode}: CPU"] = 1000 * (server.cpu_s() - before) / calls
    return figures


def post_tool_calls(port: int, token: str, name: str, calls: int, *, keeps: bool) -> Work:
    """Return the work of a coding agent; no call may be held, and every report is recorded."""

    def work() -> Timings:
        sender = _Sender(port, token, keeps=keeps)
        latencies = []
        started = time.monotonic()
        for number in range(calls):
            before, after = build_hooks(name, number)
            sent = time.perf_counter()
            permitted = sender.send("POST", _PATH, before)
            recorded = sender.send("POST", _PATH, after)
            latencies.append(time.perf_counter() - sent)
            output = permitted.get("hookSpecificOutput", {})
            if set(output) != {"hookEventName"} or recorded:
                raise RuntimeError(f"a hook was answered {permitted} and {recorded}")
        wall_s = time.monotonic() - started
        sender.close()
        return Timings(wall_s, {"call": latencies}, {200: 2 * calls})

    return work


def ask_limits(port: int, token: str, calls: int, *, keeps: bool) -> Work:
    """Return the work of a client that sends two requests, which only check the token, per call."""

    def work() -> Timings:
        sender = _Sender(port, token, keeps=keeps)
        latencies = []
        started = time.monotonic()
        for _ in range(calls):
            sent = time.perf_counter()
            sender.send("GET", _EMPTY)
            sender.send("GET", _EMPTY)
            latencies.append(time.perf_counter() - sent)
        wall_s = time.monotonic() - started
        sender.close()
        return Timings(wall_s, {"call": latencies}, {200: 2 * calls})

    return work


class _Sender:
    """A client of one connection, or of a new one for every request."""

    def __init__(self, port: int, token: str, *, keeps: bool) -> None:
        self._port, self._keeps = port, keeps
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def send(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """Send a request and return the JSON of its answer, which must be 200."""
        self._connection.request(method, path, body=body, headers=self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path} was answered {answer.status}: {text[:300]!r}")
        if not self._keeps:
            self.close()
        return dict(json.loads(text))

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()


def build_hooks(name: str, number: int) -> tuple[bytes, bytes]:
    """Return the hooks of one tool call: before it runs, and with its result."""
    tool, given, result = _describe_call(number)
    session = f"{name}-{number // CALLS_OF_SESSION}"
    fields: dict[str, Any] = {
        "session_id": session,
        "transcript_path": f"/home/dev/.claude/projects/shop/{session}.jsonl",
        "cwd": "/home/dev/shop",
        "prompt_id": f"prompt-{number // 10}",
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": given,
        "tool_use_id": f"toolu_{name}_{number:06d}",
    }
    after = fields | {
        "hook_event_name": "PostToolUse",
        "tool_response": result,
        "duration_ms": 40 + number % 50,
    }
    return json.dumps(fields).encode(), json.dumps(after).encode()


def _describe_call(number: int) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return tool, input and response: half of the calls are shell commands."""
    path = f"/home/dev/shop/src/part_{number % 97}.py"
    text = make_text(number, 1_000)
    if number % 2 == 0:
        command = _COMMANDS[number // 2 % len(_COMMANDS)]
        return (
            "Bash",
            {"command": command, "description": make_text(number, 40)},
            {"stdout": text, "stderr": "", "interrupted": False, "isImage": False},
        )
    if number % 4 == 1:
        return "Read", {"file_path": path}, {"type": "text", "file": {"content": text}}
    edit = {"file_path": path, "old_string": text[:80], "new_string": text[80:200]}
    return "Edit", edit, {"filePath": path, "userModified": False}


def _measure_starts(server: Server, token: str, name: str, starts: int) -> dict[str, float]:
    """Start the command and an empty Python in turn; wall and CPU of the child."""
    start_file = ROOT / "client" / "gatebook_client" / "hook_start.py"
    empty = [sys.executable, "-I", "-S", "-c", "pass"]
    hook = [sys.executable, "-I", "-S", str(start_file), "claude-code"]
    seen: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=server.installation.folder) as home:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "GATEBOOK_URL": f"http://127.0.0.1:{server.port}",
            "GATEBOOK_TOKEN": token,
        }
        for number in range(starts):
            body, _ = build_hooks(f"{name}-start", number)
            for kind, command in (("command", hook), ("command, empty Python", empty)):
                used = _read_child_cpu_s()
                began = time.perf_counter()
                answer = _run_once(command, body, environment, Path(home))
                seen.setdefault(f"{kind}: wall", []).append(time.perf_counter() - began)
                seen.setdefault(f"{kind}: CPU", []).append(_read_child_cpu_s() - used)
                if command is hook and json.loads(answer) != {
                    "hookSpecificOutput": {"hookEventName": "PreToolUse"}
                }:
                    raise RuntimeError(f"the command answered {answer!r}")
    figures = {f"{kind}, p50": 1000 * percentile(values, 0.5) for kind, values in seen.items()}
    own, other = (sum(seen[f"{kind}: CPU"]) for kind in ("command", "command, empty Python"))
    return figures | {"command: × an empty Python": own / other}


def _read_child_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run_once(command: list[str], body: bytes, environment: dict[str, str], folder: Path) -> bytes:
    return subprocess.run(
        command, input=body, env=environment, cwd=folder, capture_output=True, check=True
    ).stdout
