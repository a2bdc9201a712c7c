"""Codex rollouts: one record per line, one thread per file.

Calls are `function_call`, `custom_tool_call` and `local_shell_call` items of the model; results
are their outputs. Whether a command succeeded stands in `item_completed` records beside them and
in the first lines of the output. An output that only says “aborted” decides nothing: Codex
writes it for calls that had happened, too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from importers.files import BadInputError, Trajectories
from importers.trajectory import (
    Call,
    Json,
    OpenCalls,
    Outcome,
    Trajectory,
    build_session_key,
    extract_text,
    parse_arguments,
    parse_iso_us,
)
from importers.transcripts import list_trajectories_with_calls, read_transcript, require_record

FORMAT = "codex"

_CALLS: Final = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_SHELLS: Final = ("exec_command", "shell", "local_shell", "write_stdin", "unified_exec")
# Arguments in which the model describes a call; their text differs when it repeats the call.
_DESCRIPTIONS: Final = ("justification", "description")
_EXIT_CODE: Final = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d+)$", re.MULTILINE)
_RUNNING: Final = re.compile(r"^Process running with session ID ", re.MULTILINE)
_NOT_RUN: Final = re.compile(
    r"\s*(?:Command blocked by PreToolUse hook\b"
    r"|[\w.]+ failed: CreateProcess \{ message: \"Rejected\("
    r"|exec_command failed for .{0,2000}Rejected\()",
    re.DOTALL,
)
_ABORTED: Final = re.compile(r"(?:\s*|Wall time: [^\n]*\n)aborted\b")
_TITLE_IS_CONTEXT: Final = re.compile(r"\s*<[a-z_]+>")


def read_codex(path: Path) -> Trajectories:
    """Return the thread of a rollout, if it has at least one call."""
    nothing = "not a Codex rollout: no record names its session"
    return read_transcript(path, CodexRollout(), nothing)


class CodexRollout:
    """A rollout being read, record by record."""

    def __init__(self) -> None:
        self.sessions: dict[str, Trajectory] = {}
        self._trajectory: Trajectory | None = None
        self._turn = 0
        self._open = OpenCalls()
        self._outcomes: dict[str, Outcome] = {}  # by call id, from item_completed

    def list_trajectories(self) -> list[Trajectory]:
        """Return the thread if it has at least one call, as far as it was read."""
        return list_trajectories_with_calls(self.sessions)

    @property
    def has_session(self) -> bool:
        """Return whether the rollout has named its thread."""
        return bool(self.sessions)

    def add(self, line: int, record: Json) -> None:
        """Read the next record. Raises BadInputError."""
        record, kind = require_record(line, record, "Codex")
        payload = record.get("payload")
        if not isinstance(payload, dict):
            if self._trajectory is None:
                raise BadInputError(line, "not a Codex record: no payload")
            return
        if kind == "session_meta":
            self._start(line, record, payload)
            return
        if self._trajectory is None:
            raise BadInputError(line, "not a Codex rollout: it does not begin with session_meta")
        moment = parse_iso_us(record.get("timestamp"))
        if kind == "turn_context":
            self._turn += 1
            self._trajectory.describe(labels={"model": payload.get("model")})
        elif kind == "response_item":
            self._read_item(self._trajectory, payload, moment)
        elif kind == "event_msg" and payload.get("type") == "item_completed":
            self._read_completion(payload.get("item"))

    def _start(self, line: int, record: dict[str, Json], payload: dict[str, Json]) -> None:
        """Read the head of a rollout; a resumed thread repeats it, and others may be quoted."""
        thread = payload.get("id") or payload.get("session_id")
        if not isinstance(thread, str) or not thread:
            raise BadInputError(line, "not a Codex rollout: session_meta without an id")
        if self._trajectory is not None:
            return
        key = build_session_key(thread)
        trajectory = Trajectory(FORMAT, key)
        trajectory.started_us = parse_iso_us(record.get("timestamp"))
        git = payload.get("git")
        trajectory.describe(
            branch=git.get("branch") if isinstance(git, dict) else None,
            labels={"codex_version": payload.get("cli_version")},
        )
        self.sessions[key] = self._trajectory = trajectory

    def _read_item(self, trajectory: Trajectory, item: dict[str, Json], moment: int | None) -> None:
        kind = item.get("type")
        if kind == "message" and item.get("role") == "user":
            text = extract_text(item.get("content"))
            if not _TITLE_IS_CONTEXT.match(text):
                trajectory.describe(title=text)
        elif kind in _CALLS:
            arguments = _read_arguments(item)
            name = item.get("name") or ("local_shell" if kind == "local_shell_call" else None)
            if isinstance(item.get("namespace"), str) and isinstance(name, str):
                name = f"{item['namespace']}__{name}"
            call = trajectory.add_call(
                name,
                arguments,
                turn=max(self._turn, 1),
                call_id=item.get("call_id") or item.get("id"),
                occurred_us=moment,
                talk=_DESCRIPTIONS,
            )
            self._open.add(trajectory, call)
        elif kind in _OUTPUTS:
            pair = self._open.take(item.get("call_id"), within=trajectory)
            if pair is not None:
                output = item.get("output")
                pair[0].answer(pair[1], output, self._classify(pair[1], output), moment)

    def _read_completion(self, item: Json) -> None:
        """Remember how a command, a file change or a tool of an MCP server ended."""
        if not isinstance(item, dict) or not isinstance(item.get("id"), str):
            return
        status, code = item.get("status"), item.get("exit_code")
        if status == "declined":
            self._outcomes[item["id"]] = "refused"
        elif isinstance(code, int) and not isinstance(code, bool) and code >= 0:
            self._outcomes[item["id"]] = "ok" if code == 0 else "error"
        elif item.get("type") in ("FileChange", "McpToolCall") and status in (
            "completed",
            "failed",
        ):
            self._outcomes[item["id"]] = "ok" if status == "completed" else "error"

    def _classify(self, call: Call, output: Json) -> Outcome:
        """Return the outcome of a call as the rollout reports it; unknown where it does not."""
        text = extract_text(output) if isinstance(output, list) else str(output or "")
        if _NOT_RUN.match(text):
            return "refused"
        if _ABORTED.match(text):
            return "unknown"
        outcome = self._outcomes.pop(call.call_id or "", None)
        if outcome is not None:
            return outcome
        code = _EXIT_CODE.search(text[:2000])
        if code is not None:
            return "ok" if code[1] == "0" else "error"
        if call.tool in _SHELLS or _RUNNING.search(text[:2000]):
            return "unknown"
        return "ok"


def _read_arguments(item: dict[str, Json]) -> Json:
    """Return the arguments of a call; a text that is not JSON stays a text."""
    if item.get("type") == "local_shell_call":
        return item.get("action")
    raw = item.get("arguments") if item.get("type") == "function_call" else item.get("input")
    return parse_arguments(raw) if item.get("type") == "function_call" else raw
