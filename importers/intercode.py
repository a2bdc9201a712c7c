"""InterCode logs: actions, observations and validity flags without times."""

from __future__ import annotations

from pathlib import Path

from importers.files import Document, Trajectories, build_origin_labels, collect_trajectories
from importers.trajectory import Json, Outcome, Trajectory, build_document_key

FORMAT = "intercode"


def read_intercode(path: Path) -> Trajectories:
    """Return the episodes with at least one action."""
    return collect_trajectories(path, _is_document, _parse_document)


def _is_document(value: Json) -> bool:
    history = value.get("turn_history") if isinstance(value, dict) else None
    return isinstance(history, dict) and isinstance(history.get("actions"), list)


def _parse_document(document: Document) -> Trajectory:
    raw = document.raw
    natural = f"{FORMAT}/{raw.get('environment')}.task{raw.get('task_id')}"
    trajectory = Trajectory(FORMAT, build_document_key(document.origin, natural, raw))
    query = raw.get("query")
    trajectory.describe(
        title=query if isinstance(query, str) else "",
        labels={
            "environment": raw.get("environment"),
            "dataset": raw.get("dataset"),
            "task": raw.get("task_id"),
            **build_origin_labels(document.origin),
        },
    )
    history = raw["turn_history"]
    observations = history.get("observations")
    valid = history.get("valid_action")
    for index, action in enumerate(history["actions"]):
        arguments = {"command": action} if isinstance(action, str) else action
        call = trajectory.add_call("bash", arguments, turn=index + 1)
        if isinstance(observations, list) and index < len(observations):
            trajectory.answer(
                call, observations[index], _get_outcome(valid, index, observations[index])
            )
    trajectory.ended = "completed" if isinstance(raw.get("summary"), dict) else None
    return trajectory


def _get_outcome(valid: Json, index: int, observation: Json) -> Outcome:
    is_valid = valid[index] if isinstance(valid, list) and index < len(valid) else None
    if is_valid is None or observation == "Command timed out":  # it ran and was killed
        return "unknown"
    return "ok" if is_valid is True else "error"
