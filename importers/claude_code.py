"""Claude Code transcripts: one record per line, for main sessions and sub-agents.

A record belongs to the session `sessionId` or to its sub-agent `sessionId/agentId`, so one file may
contain several sessions, and one session may span several files. Calls are `tool_use` blocks of
assistant records; results are `tool_result` blocks of user records, anywhere in the file. Progress
records repeat the work of sub-agents and are skipped.
"""

from __future__ import annotations

import re
from pathlib import Path

from importers.files import BadInputError, Trajectories
from importers.trajectory import (
    Json,
    OpenCalls,
    Outcome,
    Trajectory,
    build_session_key,
    extract_text,
    hash_json,
    parse_iso_us,
    unwrap_text_block,
)
from importers.transcripts import list_trajectories_with_calls, read_transcript, require_record

FORMAT = "claude-code"

# Arguments in which the model describes a call; their text differs when it repeats the call.
_DESCRIPTIONS = {"Bash": ("description",), "Task": ("description",)}
_EDITS = ("Edit", "MultiEdit", "Write", "NotebookEdit")
_NOT_RUN = re.compile(
    r"\s*(?:<tool_use_error>\s*(?:InputValidationError|Error: No such tool available)\b"
    r"|Permission to use .{1,2000}? has been denied"
    r"|Claude requested permissions to .{1,2000}?, but you haven't granted it yet"
    r"|Hook PreToolUse\S* denied this tool)",
    re.DOTALL,
)
_REJECTED = re.compile(
    r"\s*The user doesn't want to (?:proceed with this tool use|take this action right now)\b"
)
_STOPPED = re.compile(
    r"\s*(?:\[Request interrupted by user"
    r"|<tool_use_error>\s*(?:Sibling tool call errored|Cancelled: parallel tool call))"
)


def read_claude_code(path: Path) -> Trajectories:
    """Return the sessions with at least one call, in the order of their first records."""
    nothing = "not a Claude Code transcript: no record names its sessionId"
    return read_transcript(path, ClaudeTranscript(), nothing)


class _Session:
    """One session being read, with the state to skip repeated lines and blocks."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self.records: set[str] = set()  # uuids of records already read
        self.calls: set[str] = set()  # identities of calls already read
        self.turns: dict[str, int] = {}  # message id to turn


class ClaudeTranscript:
    """A transcript being read, record by record."""

    def __init__(self) -> None:
        self.sessions: dict[str, _Session] = {}
        self._open = OpenCalls()
        # Results that precede their calls.
        self._early_results: dict[str, list[tuple[dict[str, Json], int | None]]] = {}

    def list_trajectories(self) -> list[Trajectory]:
        """Return the sessions with at least one call, as far as they were read."""
        return list_trajectories_with_calls(
            {key: session.trajectory for key, session in self.sessions.items()}
        )

    @property
    def has_session(self) -> bool:
        """Return whether a record has named its session."""
        return bool(self.sessions)

    def add(self, line: int, record: Json) -> None:
        """Read the next record. Raises BadInputError."""
        record, kind = require_record(line, record, "Claude Code")
        session = self._session_of(line, record)
        if session is None:
            return
        uuid = record.get("uuid")
        if isinstance(uuid, str):
            if uuid in session.records:
                return
            session.records.add(uuid)
        if kind not in ("assistant", "user"):
            return
        message = record.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not isinstance(content, str | list):
            raise BadInputError(line, f"a Claude Code {kind} record without message content")
        blocks = (
            [block for block in content if isinstance(block, dict)]
            if isinstance(content, list)
            else []
        )
        if kind == "assistant":
            self._assistant(session, record, message, blocks)
        else:
            self._user(session, record, content, blocks)

    def _session_of(self, line: int, record: dict[str, Json]) -> _Session | None:
        session_id = record.get("sessionId")
        if not isinstance(session_id, str) or not session_id:
            # Snapshots and summaries name no session. A file without any session is not a
            # transcript.
            if not self.sessions and record["type"] not in ("file-history-snapshot", "summary"):
                raise BadInputError(
                    line,
                    f"not a Claude Code record: type {record['type'][:40]!r} without a sessionId",
                )
            return None
        agent_id = record.get("agentId")
        is_child = isinstance(agent_id, str) and agent_id != ""
        key = build_session_key(f"{session_id}/{agent_id}" if is_child else session_id)
        if key not in self.sessions:
            parent = build_session_key(session_id) if is_child else None
            self.sessions[key] = _Session(Trajectory(FORMAT, key, parent_key=parent))
        session = self.sessions[key]
        trajectory = session.trajectory
        if trajectory.started_us is None and not trajectory.calls:
            trajectory.started_us = parse_iso_us(record.get("timestamp"))
        trajectory.describe(
            branch=record.get("gitBranch"), labels={"claude_version": record.get("version")}
        )
        return session

    def _assistant(
        self,
        session: _Session,
        record: dict[str, Json],
        message: dict[str, Json],
        blocks: list[dict[str, Json]],
    ) -> None:
        trajectory = session.trajectory
        # One message may be split into several records, each with some of its blocks.
        message_id = str(message.get("id") or record.get("uuid") or "")
        turn = session.turns.setdefault(message_id, len(session.turns) + 1)
        trajectory.describe(labels={"model": message.get("model")})
        for block in blocks:
            if block.get("type") != "tool_use":
                continue
            arguments = block.get("input", {})
            identity = hash_json([message_id, block.get("id"), block.get("name"), arguments])
            if isinstance(block.get("id"), str) and identity in session.calls:
                continue
            session.calls.add(identity)
            call = trajectory.add_call(
                block.get("name"),
                arguments,
                turn=turn,
                call_id=block.get("id"),
                occurred_us=parse_iso_us(record.get("timestamp")),
                talk=_DESCRIPTIONS.get(str(block.get("name")), ()),
            )
            self._open.add(trajectory, call)
            early = self._early_results.get(call.call_id or "")
            if early:
                self._add_result(trajectory, *early.pop(0))

    def _user(
        self,
        session: _Session,
        record: dict[str, Json],
        content: Json,
        blocks: list[dict[str, Json]],
    ) -> None:
        if record.get("isMeta") is not True:
            session.trajectory.describe(title=extract_text(content))
        moment = parse_iso_us(record.get("timestamp"))
        for block in blocks:
            if block.get("type") != "tool_result":
                continue
            call_id = block.get("tool_use_id")
            if isinstance(call_id, str) and not self._open.knows(call_id):
                self._early_results.setdefault(call_id, []).append((block, moment))
                continue
            self._add_result(session.trajectory, block, moment)

    def _add_result(self, within: Trajectory, block: dict[str, Json], moment: int | None) -> None:
        pair = self._open.take(block.get("tool_use_id"), within=within)
        if pair is not None:
            outcome: Outcome = (
                _classify_error(pair[1].tool, block) if block.get("is_error") is True else "ok"
            )
            pair[0].answer(pair[1], unwrap_text_block(block.get("content", "")), outcome, moment)


def _classify_error(tool: str, block: dict[str, Json]) -> Outcome:
    """Classify an error: the call did not run, may have run, or ran and failed."""
    text = extract_text(block.get("content"))
    if _NOT_RUN.match(text):
        return "refused"
    if _REJECTED.match(text):
        # The text is the same for a refused and an interrupted call. A refusal may include the
        # person's reason. An edit was not written in either case.
        return "refused" if tool in _EDITS or "the user said:" in text else "unknown"
    return "unknown" if _STOPPED.match(text) else "error"
