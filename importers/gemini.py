"""Conversations of Gemini CLI: `~/.gemini/tmp/<project>/chats/`, one session or sub-agent a file.

A file of JSON lines is a log: a record with the id of an earlier message replaces it, `$set` may
hold the whole history once more, and `$rewindTo` takes messages back. Older versions rewrite one
JSON document. A call is read where it appears first, and what was taken back had happened.

Calls are `toolCalls` of the model's messages, written together when the last call of a message has
ended: a call during which the program was killed is in no file. After a resumption the history has
them as `functionCall` and `functionResponse` parts.

Files of one session may overlap. So a call counts by its id, wherever it stands, and an id is used
once in a session.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from hooks.coding_agents.gemini_outputs import read_shell_end
from importers.files import BadInputError, Trajectories
from importers.trajectory import (
    Call,
    Json,
    Outcome,
    Trajectory,
    build_session_key,
    extract_text,
    parse_iso_us,
)
from importers.transcripts import list_trajectories_with_calls, read_transcript

FORMAT = "gemini"
SHELL: Final = "run_shell_command"

# The time at which the model made the call, in milliseconds: in the id that the program gives it.
_ISSUED: Final = re.compile(r"_(\d{13})_\d+")
_CONTEXT: Final = re.compile(r"\s*(?:$|[/?]|<session_context>|<hook_context>)")
# Texts for a call that was not started.
_NOT_RUN: Final = re.compile(
    r"(?:Tool execution blocked: |Tool execution denied by policy\."
    r'|Tool "[^"\n]{0,300}" not found\.'
    r'|Tool execution for "[^"\n]{0,300}" (?:denied by policy|requires user confirmation)'
    r"|params(?:/\S{0,300})? must "
    r"|Tool parameter modification by hook failed validation"
    r"|\[Operation Cancelled\] Reason: (?:User denied execution|User cancelled operation"
    r"|User did not allow tool call))"
)
# Texts for a call that may have been stopped in its middle, or whose result a hook withheld.
_STOPPED: Final = re.compile(
    r"\[Operation Cancelled\]|Tool result blocked: |Agent execution stopped by hook: "
)


def read_gemini(path: Path) -> Trajectories:
    """Return the session of a file, if it has at least one call."""
    return read_transcript(
        path, GeminiConversation(path), "not a conversation of Gemini CLI: no record has a session"
    )


class GeminiConversation:
    """A conversation being read, record by record.

    The folder of a sub-agent's file names the session that started it.
    """

    def __init__(self, path: Path) -> None:
        self._folder = path.absolute().parent
        self.sessions: dict[str, Trajectory] = {}
        self._trajectory: Trajectory | None = None
        self._calls: dict[tuple[str, str], Call] = {}  # by session and id

    def list_trajectories(self) -> list[Trajectory]:
        """Return the session if it has at least one call, as far as it was read."""
        return list_trajectories_with_calls(self.sessions)

    @property
    def has_session(self) -> bool:
        """Return whether a record has named the session."""
        return bool(self.sessions)

    def add(self, line: int, record: Json) -> None:
        """Read the next record, or a complete document. Raises BadInputError."""
        if not isinstance(record, dict):
            raise BadInputError(line, "not a record of a Gemini CLI conversation")
        if isinstance(record.get("sessionId"), str) and isinstance(record.get("projectHash"), str):
            self._start(line, record)
        trajectory = self._trajectory
        if trajectory is None:
            reason = "it does not begin with sessionId and projectHash"
            raise BadInputError(line, f"not a conversation of Gemini CLI: {reason}")
        changes = record.get("$set")
        for holder in (record, changes):
            history = holder.get("messages") if isinstance(holder, dict) else None
            for message in history if isinstance(history, list) else ():
                self._read_message(trajectory, message, is_live=holder is record)
        if "sessionId" not in record:
            self._read_message(trajectory, record, is_live=True)

    def _start(self, line: int, record: dict[str, Json]) -> None:
        """Read the head of a file; a resumed session repeats it."""
        if not record["sessionId"]:
            raise BadInputError(line, "not a conversation of Gemini CLI: an empty sessionId")
        key = build_session_key(record["sessionId"])
        if key in self.sessions:
            self._trajectory = self.sessions[key]
            return
        is_child = record.get("kind") == "subagent" and self._folder.parent.name == "chats"
        parent = build_session_key(self._folder.name) if is_child else None
        trajectory = Trajectory(FORMAT, key, parent_key=parent, has_unique_ids=True)
        trajectory.started_us = parse_iso_us(record.get("startTime"))
        self.sessions[key] = self._trajectory = trajectory

    def _read_message(self, trajectory: Trajectory, message: Json, *, is_live: bool) -> None:
        """Read a message. A history that was written again (not `is_live`) has other times."""
        if not isinstance(message, dict) or not isinstance(message.get("id"), str):
            return
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        moment = parse_iso_us(message.get("timestamp")) if is_live else None
        if message.get("type") == "gemini":
            trajectory.describe(labels={"model": message.get("model")})
            for item in parts:
                call = item.get("functionCall") if isinstance(item, dict) else None
                if isinstance(call, dict):
                    self._add_call(trajectory, message["id"], call, moment)
            calls = message.get("toolCalls")
            for item in calls if isinstance(calls, list) else ():
                if isinstance(item, dict):
                    self._add_call(trajectory, message["id"], item, moment)
                    self._add_result(trajectory, item)
        elif message.get("type") == "user":
            text = extract_text(content)
            if not _CONTEXT.match(text):
                trajectory.describe(title=text)
        for response in _list_responses(parts):
            self._answer(trajectory, response, "", moment)

    def _add_call(
        self, trajectory: Trajectory, turn: str, item: dict[str, Json], moment: int | None
    ) -> None:
        identity = item.get("id")
        if not isinstance(identity, str) or not identity:
            identity = f"{turn}:{item.get('name')}"
        if (trajectory.key, identity) in self._calls:
            return
        issued = _ISSUED.search(identity)
        self._calls[trajectory.key, identity] = trajectory.add_call(
            item.get("name"),
            item.get("args", {}),
            turn=build_session_key(turn),  # printable and short
            call_id=identity,
            occurred_us=int(issued[1]) * 1000 if issued else moment,
            talk=("description",) if item.get("name") == SHELL else (),
        )

    def _add_result(self, trajectory: Trajectory, item: dict[str, Json]) -> None:
        """Read the end of a call; a call without one is still running."""
        status, identity = item.get("status"), item.get("id")
        finished_us = parse_iso_us(item.get("timestamp"))
        result = item.get("result")
        for response in _list_responses(result if isinstance(result, list) else [result]):
            if response.get("id") == identity:
                self._answer(trajectory, response, str(status), finished_us)
                return
        if status in ("success", "error", "cancelled"):
            shown = item.get("resultDisplay", "") if result is None else result
            response = {"id": identity, "response": {"output": shown}}
            self._answer(trajectory, response, str(status), finished_us)

    def _answer(
        self,
        trajectory: Trajectory,
        response: dict[str, Json],
        status: str,
        finished_us: int | None,
    ) -> None:
        call = self._calls.get((trajectory.key, str(response.get("id"))))
        if call is None or call.result is not None:
            return
        values = response.get("response")
        is_error = status in ("error", "cancelled")
        content = values
        if isinstance(values, dict):
            is_error = is_error or "error" in values
            if len(values) == 1 and values.keys() <= {"output", "error"}:
                (content,) = values.values()
        trajectory.answer(call, content, _classify(call, values, status, is_error), finished_us)


def _list_responses(parts: list[Json]) -> list[dict[str, Json]]:
    responses = [part.get("functionResponse") for part in parts if isinstance(part, dict)]
    return [response for response in responses if isinstance(response, dict)]


def _classify(call: Call, values: Json, status: str, is_error: bool) -> Outcome:
    """Return the outcome of a call as the conversation reports it; unknown where it does not."""
    values = values if isinstance(values, dict) else {"output": values}
    output, error = (str(values.get(name, "")) for name in ("output", "error"))
    if is_error and _NOT_RUN.match(error or output):
        return "refused"
    if status == "cancelled" or (is_error and _STOPPED.match(error or output)):
        return "unknown"
    if call.tool == SHELL and output:
        outcome, reason = read_shell_end(output)
        if reason:
            return "refused" if reason == "rejected" else "unknown"
        if outcome == "error":
            return "error"
        if outcome == "unknown":
            return "unknown"
    return "error" if is_error else "ok"
