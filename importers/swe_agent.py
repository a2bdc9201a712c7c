"""SWE-agent trajectories: steps, or only the conversation.

Older files and demonstrations have only the conversation. Neither form has times or exit codes. An
observation means the outcome `ok`, unless the environment reports that it did not run the command
or killed it.
"""

from __future__ import annotations

import re
from pathlib import Path

from importers.files import Document, Trajectories, build_origin_labels, collect_trajectories
from importers.trajectory import (
    EndStatus,
    Json,
    OpenCalls,
    Outcome,
    Trajectory,
    build_document_key,
    extract_text,
)

FORMAT = "swe-agent"
# Steps are lines of the agent's own shell, which has more commands than bash.
SHELL_TOOL = "shell"
_NOT_RUN = re.compile(
    r"\s*(?:Your bash command contained syntax errors and was NOT executed\b"
    r"|Operation '.{1,500}?' is not supported by this environment)",
    re.DOTALL,
)
_KILLED = re.compile(
    r"\s*(?:EXECUTION TIMED OUT\b"
    r"|The command '.{0,100000}?' was cancelled because it took more than)",
    re.DOTALL,
)


def read_swe_agent(path: Path) -> Trajectories:
    """Return the runs with at least one call."""
    return collect_trajectories(path, _is_document, _parse_document)


def _is_document(value: Json) -> bool:
    if not isinstance(value, dict):
        return False
    steps, history = value.get("trajectory"), value.get("history")
    if steps is None and history is None:
        return False
    return (
        _all_have("action", steps)
        and _all_have("role", history)
        and bool(steps or isinstance(history, list))
    )


def _all_have(name: str, entries: Json) -> bool:
    if entries is None:
        return True
    return isinstance(entries, list) and all(
        isinstance(entry, dict) and name in entry for entry in entries
    )


def _parse_document(document: Document) -> Trajectory:
    raw = document.raw
    trajectory = Trajectory(FORMAT, build_document_key(document.origin, "", raw))
    trajectory.describe(
        labels={"environment": raw.get("environment"), **build_origin_labels(document.origin)}
    )
    history: list[dict[str, Json]] = raw.get("history") or []
    for message in history:
        if message.get("role") == "user" and not message.get("is_demo"):
            trajectory.describe(title=extract_text(message.get("content")))
    if raw.get("trajectory"):
        _read_steps(trajectory, raw["trajectory"])
    else:
        _read_conversation(trajectory, history)
    trajectory.ended = _get_end_status(raw.get("info"))
    return trajectory


def _read_steps(trajectory: Trajectory, steps: list[dict[str, Json]]) -> None:
    for turn, step in enumerate(steps, 1):
        action = step["action"]
        # A step without an action is a message of the harness (format error, limit); nothing ran.
        if not isinstance(action, str) or not action.strip():
            continue
        call = trajectory.add_call(SHELL_TOOL, {"command": action}, turn=turn)
        if step.get("observation") is not None:
            trajectory.answer(call, step["observation"], _get_outcome(step["observation"]))


def _read_conversation(trajectory: Trajectory, history: list[dict[str, Json]]) -> None:
    open_calls = OpenCalls()
    turn = 0
    for index, message in enumerate(history):
        if message.get("is_demo"):
            continue
        if message.get("role") == "tool":
            ids = message.get("tool_call_ids") or [message.get("tool_call_id")]
            for call_id in ids if isinstance(ids, list) else []:
                pair = open_calls.take(call_id)
                if pair is not None:
                    content = message.get("content", "")
                    trajectory.answer(pair[1], content, _get_outcome(content))
            continue
        if message.get("role") != "assistant":
            continue
        turn += 1
        requests = message.get("tool_calls")
        for request in requests if isinstance(requests, list) else []:
            function = request.get("function") if isinstance(request, dict) else None
            if isinstance(function, dict):
                # Arguments stay the text that the model sent; the file does not record how the
                # tool parsed them.
                call = trajectory.add_call(
                    function.get("name"),
                    function.get("arguments"),
                    turn=turn,
                    call_id=request.get("id"),
                )
                open_calls.add(trajectory, call)
        action = message.get("action")
        if not requests and isinstance(action, str) and action.strip():
            call = trajectory.add_call(SHELL_TOOL, {"command": action}, turn=turn)
            answer = history[index + 1] if index + 1 < len(history) else None
            if answer is not None and answer.get("role") in ("user", "tool"):
                content = answer.get("content", "")
                trajectory.answer(call, content, _get_outcome(content))


def _get_outcome(observation: Json) -> Outcome:
    text = extract_text(observation)
    if _NOT_RUN.match(text):
        return "refused"
    return "unknown" if _KILLED.match(text) else "ok"


def _get_end_status(info: Json) -> EndStatus | None:
    status = info.get("exit_status") if isinstance(info, dict) else None
    if not isinstance(status, str) or not status:
        return None
    return "completed" if status.startswith("submitted") else "failed"
