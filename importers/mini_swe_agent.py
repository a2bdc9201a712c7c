"""mini-swe-agent trajectories: replies with one bash block, then its outcome.

From version 2 on, a reply may use tool calls instead. Messages of role `tool` are their results;
the `exit` message is the result of the call that submitted.

The harness rejects a reply with several blocks and runs none of them: the reply is one refused call
of its first block. A command that the person did not confirm is also refused. The outcome of a
command without a return code is unknown: it timed out and was killed, or was interrupted.
"""

from __future__ import annotations

import re
from pathlib import Path

from importers.files import Document, Trajectories, build_origin_labels, collect_trajectories
from importers.trajectory import (
    Call,
    Json,
    OpenCalls,
    Outcome,
    Trajectory,
    build_document_key,
    extract_text,
    parse_arguments,
    seconds_to_us,
)

FORMAT = "mini-swe-agent"

_BASH_BLOCK = re.compile(r"```(bash|mswea_bash_action)\s*\n(.*?)\n```", re.DOTALL)
# Texts of the harness for calls that it did not run, and the markers of version 2 for the same.
_REFUSED = re.compile(r"\s*(?:Please always provide EXACTLY ONE action\b|Commands? not executed\b)")
_REFUSALS = ("FormatError", "UserRejection")
_TIMED_OUT = re.compile(
    r"\s*The last command .{0,100000}? timed out and has been killed", re.DOTALL
)
_RETURN_CODE = re.compile(r"\s*<returncode>(-?\d+)</returncode>")


def read_mini_swe_agent(path: Path) -> Trajectories:
    """Return the runs with at least one call."""
    return collect_trajectories(path, _is_document, _parse_document)


def _is_document(value: Json) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    if not all(isinstance(message, dict) and "role" in message for message in value["messages"]):
        return False
    return isinstance(value.get("info"), dict) or str(value.get("trajectory_format")).startswith(
        FORMAT
    )


def _parse_document(document: Document) -> Trajectory:
    raw = document.raw
    info = raw.get("info") if isinstance(raw.get("info"), dict) else {}
    instance = raw.get("instance_id")
    name = instance if isinstance(instance, str) else ""
    trajectory = Trajectory(
        FORMAT, build_document_key(document.origin, name and f"{FORMAT}/{name}", raw)
    )
    trajectory.describe(
        title=name,
        labels={
            "instance": name,
            "model": _get_model(info),
            **build_origin_labels(document.origin),
        },
    )
    submitted = info.get("exit_status") == "Submitted"
    messages: list[dict[str, Json]] = raw["messages"]
    requested = OpenCalls()
    last: str | None = None
    latest: list[Call] = []  # the calls of the latest reply
    turn = 0
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            if message["role"] == "user":
                trajectory.describe(title=extract_text(message.get("content")))
                if _is_refusal(message):
                    for call in latest:
                        trajectory.answer(
                            call, message.get("content", ""), "refused", _get_time(message)
                        )
            is_submission = submitted and message["role"] == "exit"
            pair = requested.take(last if is_submission else message.get("tool_call_id"))
            if pair is not None:
                content = message.get("content", "")
                trajectory.answer(
                    pair[1],
                    content,
                    _get_outcome(extract_text(content), is_submission),
                    _get_time(message),
                )
            continue
        turn += 1
        latest = []
        requests = _get_requests(message)
        for request in requests:
            moment = _get_time(message)
            trajectory.started_us = trajectory.started_us if trajectory.calls else moment
            function = request["function"]
            call = trajectory.add_call(
                function.get("name"),
                parse_arguments(function.get("arguments")),
                turn=turn,
                call_id=request.get("id"),
                occurred_us=moment,
            )
            requested.add(trajectory, call)
            latest.append(call)
            # The end of the run names no call, so it is only assigned to a single call.
            last = call.call_id if len(requests) == 1 else None
        if requests:
            continue
        found_blocks = _BASH_BLOCK.findall(extract_text(message.get("content")))
        blocks = [command for _name, command in found_blocks]
        if not blocks:
            continue
        response = _get_response(message)
        moment = seconds_to_us(response.get("created"))
        if trajectory.started_us is None and not trajectory.calls:
            trajectory.started_us = moment
        call = trajectory.add_call(
            "bash",
            {"command": blocks[0]},
            turn=turn,
            call_id=response.get("id"),
            occurred_us=moment,
        )
        answer = messages[index + 1] if index + 1 < len(messages) else None
        if answer is not None and answer["role"] != "assistant":
            is_last = index + 2 == len(messages)
            content = answer.get("content", "")
            outcome = _get_outcome(extract_text(content), submitted and is_last)
            if outcome == "unknown" and (
                _is_refusal(answer) or _has_several_blocks(found_blocks, answer)
            ):
                outcome = "refused"
            trajectory.answer(call, content, outcome)
    if isinstance(info.get("exit_status"), str) and info["exit_status"]:
        trajectory.ended = "completed" if submitted else "failed"
    return trajectory


def _get_outcome(answer: str, is_submission: bool) -> Outcome:
    code = _RETURN_CODE.match(answer)
    if code is not None:
        return "ok" if int(code.group(1)) == 0 else "error"
    return "ok" if is_submission else "unknown"


def _is_refusal(message: dict[str, Json]) -> bool:
    """Return whether the harness reports that it ran nothing of the previous reply."""
    extra = message.get("extra")
    marked = isinstance(extra, dict) and extra.get("interrupt_type") in _REFUSALS
    return marked or _REFUSED.match(extract_text(message.get("content"))) is not None


def _has_several_blocks(blocks: list[tuple[str, str]], answer: dict[str, Json]) -> bool:
    """Return whether a reply has several blocks of each name and no command timed out."""
    names = [name for name, _command in blocks]
    several = all(names.count(name) > 1 for name in set(names))
    return several and _TIMED_OUT.match(extract_text(answer.get("content"))) is None


def _get_requests(message: dict[str, Json]) -> list[dict[str, Json]]:
    requests = message.get("tool_calls")
    if not isinstance(requests, list):
        return []
    return [
        request
        for request in requests
        if isinstance(request, dict) and isinstance(request.get("function"), dict)
    ]


def _get_time(message: dict[str, Json]) -> int | None:
    extra = message.get("extra")
    return seconds_to_us(extra.get("timestamp")) if isinstance(extra, dict) else None


def _get_response(message: dict[str, Json]) -> dict[str, Json]:
    extra = message.get("extra")
    response = extra.get("response") if isinstance(extra, dict) else None
    return response if isinstance(response, dict) else {}


def _get_model(info: dict[str, Json]) -> Json:
    config = info.get("config")
    model = config.get("model") if isinstance(config, dict) else None
    return model.get("model_name") if isinstance(model, dict) else None
