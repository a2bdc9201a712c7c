"""mini-swe-agent trajectories: a conversation in which a reply holds one bash block and the next message its outcome.

From version 2 on a reply may ask by tool calls instead; messages of role `tool` answer them, and the end of the run the
one that submitted.

A reply with several blocks was refused by the agent's harness and nothing of it ran; it stays one call, of its first
block, with outcome unknown, because the only sign of success is a return code and none was reported.
"""

from __future__ import annotations

import re
from pathlib import Path

from ingest.importers.reading import Document, collect, origin_labels, read_documents
from ingest.importers.shapes import (
    Json,
    OpenCalls,
    Outcome,
    Trajectory,
    arguments_of,
    document_key,
    microseconds_of_seconds,
    text_of,
)

FORMAT = "mini-swe-agent"

_BASH_BLOCK = re.compile(r"```(?:bash|mswea_bash_action)\s*\n(.*?)\n```", re.DOTALL)
_RETURN_CODE = re.compile(r"\s*<returncode>(-?\d+)</returncode>")


def read(path: Path) -> list[Trajectory]:
    """The runs with at least one call."""
    return collect(read_documents(path, _describes), _trajectory)


def _describes(value: Json) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    if not all(isinstance(message, dict) and "role" in message for message in value["messages"]):
        return False
    return isinstance(value.get("info"), dict) or str(value.get("trajectory_format")).startswith(FORMAT)


def _trajectory(document: Document) -> Trajectory:
    raw = document.raw
    info = raw.get("info") if isinstance(raw.get("info"), dict) else {}
    instance = raw.get("instance_id")
    name = instance if isinstance(instance, str) else ""
    trajectory = Trajectory(FORMAT, document_key(document.origin, name and f"{FORMAT}/{name}", raw))
    trajectory.describe(title=name, labels={"instance": name, "model": _model(info), **origin_labels(document.origin)})
    submitted = info.get("exit_status") == "Submitted"
    messages: list[dict[str, Json]] = raw["messages"]
    requested = OpenCalls()
    last: str | None = None
    turn = 0
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            if message["role"] == "user":
                trajectory.describe(title=text_of(message.get("content")))
            is_submission = submitted and message["role"] == "exit"
            found = requested.take(last if is_submission else message.get("tool_call_id"))
            if found is not None:
                content = message.get("content", "")
                trajectory.answer(found[1], content, _outcome(text_of(content), is_submission), _written(message))
            continue
        turn += 1
        requests = _requests(message)
        for request in requests:
            moment = _written(message)
            trajectory.started_us = trajectory.started_us if trajectory.calls else moment
            function = request["function"]
            call = trajectory.add_call(
                function.get("name"),
                arguments_of(function.get("arguments")),
                turn=turn,
                call_id=request.get("id"),
                occurred_us=moment,
            )
            requested.add(trajectory, call)
            # What ends the run names no call; of several, nobody knows which one it was.
            last = call.call_id if len(requests) == 1 else None
        if requests:
            continue
        blocks = _BASH_BLOCK.findall(text_of(message.get("content")))
        if not blocks:
            continue
        response = _response(message)
        moment = microseconds_of_seconds(response.get("created"))
        if trajectory.started_us is None and not trajectory.calls:
            trajectory.started_us = moment
        call = trajectory.add_call(
            "bash", {"command": blocks[0]}, turn=turn, call_id=response.get("id"), occurred_us=moment
        )
        answer = messages[place + 1] if place + 1 < len(messages) else None
        if answer is not None and answer["role"] != "assistant":
            is_last = place + 2 == len(messages)
            content = answer.get("content", "")
            trajectory.answer(call, content, _outcome(text_of(content), submitted and is_last))
    if isinstance(info.get("exit_status"), str) and info["exit_status"]:
        trajectory.ended = "completed" if submitted else "failed"
    return trajectory


def _outcome(answer: str, is_submission: bool) -> Outcome:
    code = _RETURN_CODE.match(answer)
    if code is not None:
        return "ok" if int(code.group(1)) == 0 else "error"
    return "ok" if is_submission else "unknown"


def _requests(message: dict[str, Json]) -> list[dict[str, Json]]:
    requests = message.get("tool_calls")
    if not isinstance(requests, list):
        return []
    return [one for one in requests if isinstance(one, dict) and isinstance(one.get("function"), dict)]


def _written(message: dict[str, Json]) -> int | None:
    extra = message.get("extra")
    return microseconds_of_seconds(extra.get("timestamp")) if isinstance(extra, dict) else None


def _response(message: dict[str, Json]) -> dict[str, Json]:
    extra = message.get("extra")
    response = extra.get("response") if isinstance(extra, dict) else None
    return response if isinstance(response, dict) else {}


def _model(info: dict[str, Json]) -> Json:
    config = info.get("config")
    model = config.get("model") if isinstance(config, dict) else None
    return model.get("model_name") if isinstance(model, dict) else None
