"""tau-bench results: one trial of one task as a conversation with tool calls.

Call ids are reused within a trial, with equal and with other arguments. Each request is a separate
call, and a result belongs to the oldest open request with its id. The files have no times.
"""

from __future__ import annotations

from pathlib import Path

from importers.files import Document, Trajectories, build_origin_labels, collect_trajectories
from importers.trajectory import (
    Json,
    OpenCalls,
    Outcome,
    Trajectory,
    build_document_key,
    extract_text,
    parse_arguments,
)

FORMAT = "tau-bench"


def read_tau_bench(path: Path) -> Trajectories:
    """Return the trials with at least one call."""
    return collect_trajectories(path, _is_document, _parse_document)


def _is_document(value: Json) -> bool:
    if (
        not isinstance(value, dict)
        or "task_id" not in value
        or not isinstance(value.get("traj"), list)
    ):
        return False
    return all(isinstance(message, dict) and "role" in message for message in value["traj"])


def _parse_document(document: Document) -> Trajectory:
    raw = document.raw
    name = f"task {raw['task_id']}, trial {raw.get('trial', 0)}"
    natural = f"{FORMAT}/task{raw['task_id']}.trial{raw.get('trial', 0)}"
    trajectory = Trajectory(FORMAT, build_document_key(document.origin, natural, raw))
    text = next((extract_text(m.get("content")) for m in raw["traj"] if m["role"] == "user"), "")
    trajectory.describe(
        title=f"{name}: {text}" if text else name,
        labels={
            "task": raw["task_id"],
            "trial": raw.get("trial"),
            **build_origin_labels(document.origin),
        },
    )
    open_calls = OpenCalls()
    turn = 0
    for message in raw["traj"]:
        if message["role"] == "assistant":
            turn += 1
            requests = message.get("tool_calls")
            for request in requests if isinstance(requests, list) else []:
                function = request.get("function") if isinstance(request, dict) else None
                if isinstance(function, dict):
                    call = trajectory.add_call(
                        function.get("name"),
                        parse_arguments(function.get("arguments")),
                        turn=turn,
                        call_id=request.get("id"),
                    )
                    open_calls.add(trajectory, call)
        elif message["role"] == "tool":
            pair = open_calls.take(message.get("tool_call_id"))
            if pair is not None:
                content = message.get("content", "")
                text = content if isinstance(content, str) else ""
                outcome: Outcome = "error" if text.startswith("Error") else "ok"
                # The environment has no such tool, so nothing ran.
                unknown_tool = text.startswith("Unknown action ")
                trajectory.answer(pair[1], content, "refused" if unknown_tool else outcome)
    # A trial with a reward is complete.
    trajectory.ended = "completed" if raw.get("reward") is not None else None
    return trajectory
