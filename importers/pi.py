"""pi coding agent sessions: a session line, then messages, one entry per line.

Calls are `toolCall` blocks of assistant messages; results are messages of role `toolResult`. Calls
of a reply that was aborted or failed did not run. A process that died leaves calls without a
result. Commands run by a person (`bashExecution`) are not the agent's.
"""

from __future__ import annotations

import re
from pathlib import Path

from importers.files import BadInputError, Trajectories, open_values
from importers.trajectory import (
    MAX_TIME_US,
    Json,
    OpenCalls,
    Outcome,
    Trajectory,
    build_session_key,
    extract_text,
    parse_iso_us,
    seconds_to_us,
    unwrap_text_block,
)

FORMAT = "pi"

# A branched session names its source file, whose name ends with the id of the source session.
_BRANCHED_FROM = re.compile(r"_([0-9A-Za-z-]{8,64})\.jsonl$")
_NOT_RUN = re.compile(
    r"\s*(?:Skipped due to queued user message|Tool \S{1,100} not found$"
    r"|Validation failed for tool )"
)
_KILLED = re.compile(r"(?:^|\n)(?:Command aborted|Command timed out after \S+ seconds)\s*$")


def read_pi(path: Path) -> Trajectories:
    """Return the sessions with at least one call."""
    sessions: dict[str, Trajectory] = {}
    open_calls = OpenCalls()
    current: Trajectory | None = None
    turn = 0
    values = open_values(path)
    for line, entry in values:
        if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
            raise BadInputError(line, "not a pi session entry: no type")
        if entry["type"] == "session":
            current = _open_session(line, entry, sessions)
            continue
        if current is None:
            raise BadInputError(
                line, "not a pi session: the first line is not an entry of type session"
            )
        if entry["type"] != "message":
            continue
        message = entry.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadInputError(line, "a pi message entry without a message and its role")
        if message["role"] == "assistant":
            turn += 1
            _add_calls(current, entry, message, turn, open_calls)
        elif message["role"] == "toolResult":
            pair = open_calls.take(message.get("toolCallId"), within=current)
            if pair is not None:
                outcome: Outcome = (
                    _classify_error(message) if message.get("isError") is True else "ok"
                )
                pair[0].answer(
                    pair[1],
                    unwrap_text_block(message.get("content", "")),
                    outcome,
                    _get_time(entry, message),
                )
        elif message["role"] == "user":
            current.describe(title=extract_text(message.get("content")))
    found_calls = Trajectories(trajectory for trajectory in sessions.values() if trajectory.calls)
    found_calls.torn = values.torn
    return found_calls


def _open_session(line: int, entry: dict[str, Json], sessions: dict[str, Trajectory]) -> Trajectory:
    session_id = entry.get("id")
    if not isinstance(session_id, str) or not session_id:
        raise BadInputError(line, "a pi session entry without an id")
    key = build_session_key(session_id)
    if key not in sessions:
        trajectory = Trajectory(FORMAT, key, started_us=parse_iso_us(entry.get("timestamp")))
        branched = _BRANCHED_FROM.search(
            str(entry.get("branchedFrom") or entry.get("parentSession") or "")
        )
        trajectory.describe(
            labels={
                "model": entry.get("modelId"),
                "branched_from": branched.group(1) if branched else None,
            }
        )
        sessions[key] = trajectory
    return sessions[key]


def _add_calls(
    trajectory: Trajectory,
    entry: dict[str, Json],
    message: dict[str, Json],
    turn: int,
    open_calls: OpenCalls,
) -> None:
    trajectory.describe(labels={"model": message.get("model")})
    content = message.get("content")
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") == "toolCall":
            call = trajectory.add_call(
                block.get("name"),
                block.get("arguments", {}),
                turn=turn,
                call_id=block.get("id"),
                occurred_us=_get_time(entry, message),
            )
            if message.get("stopReason") in ("aborted", "error"):
                # The reply is in the file, but none of its calls ran.
                trajectory.answer(
                    call, message.get("errorMessage") or "", "refused", _get_time(entry, message)
                )
            else:
                open_calls.add(trajectory, call)


def _classify_error(message: dict[str, Json]) -> Outcome:
    """Classify an error: the call did not run, was killed, or ran and failed."""
    text = extract_text(message.get("content"))
    if _NOT_RUN.match(text):
        return "refused"
    return "unknown" if _KILLED.search(text) else "error"


def _get_time(entry: dict[str, Json], message: dict[str, Json]) -> int | None:
    # The entry has the time of the line; a message has milliseconds since the epoch.
    written = parse_iso_us(entry.get("timestamp"))
    stamp = message.get("timestamp")
    if written is None and isinstance(stamp, int | float) and not isinstance(stamp, bool):
        # An integer with hundreds of digits can be parsed, but not divided.
        return seconds_to_us(stamp / 1000) if abs(stamp) <= MAX_TIME_US else None
    return written
