"""OpenHands event streams in their three published forms.

V0: `history` is a list of events; the `cause` of an `observation` is the id of its `action`. The
oldest form has no ids, times or sources; an observation belongs to the action before it. The
software-agent-sdk (V1) writes one event per line or a list of events, typed by `kind`;
observations name their `action_id`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from importers.files import (
    BadInputError,
    Document,
    Trajectories,
    build_origin_labels,
    collect_trajectories,
)
from importers.trajectory import (
    Call,
    Json,
    OpenCalls,
    Outcome,
    Trajectory,
    build_document_key,
    build_session_key,
    extract_text,
    parse_iso_us,
    unwrap_text_block,
)

FORMAT = "openhands"

# Actions of the conversation and of the runtime, which have no external effect.
_INTERNAL_ACTIONS = frozenset(
    [
        "message",
        "system",
        "recall",
        "null",
        "initialize",
        "start",
        "pause",
        "resume",
        "stop",
        "change_agent_state",
        "condensation",
        "condensation_request",
        "loop_recovery",
    ]
)

# Arguments in which the model describes a call. In `think` and `finish` they are the call itself.
_DESCRIPTIONS = ("thought", "security_risk")
_THOUGHT_TOOLS = ("think", "finish")


def read_openhands(path: Path) -> Trajectories:
    """Return the conversations with at least one call."""
    return collect_trajectories(path, _is_document, _parse_document, _join_events)


def _is_document(value: Json) -> bool:
    return _is_event_line(value) or _get_events(value) is not None


def _is_event_line(value: Json) -> bool:
    """Return whether a value is an event line; the oldest form has none."""
    return _is_event(value) and {"id", "timestamp", "source"} <= value.keys()


def _is_event(value: Json) -> bool:
    if not isinstance(value, dict) or "role" in value:
        return False
    # V1 kinds are class names; records of other programs also have a `kind`, in lower case.
    kind = value.get("kind")
    if isinstance(kind, str):
        return kind[:1].isupper()
    return any(isinstance(value.get(name), str) for name in ("action", "observation"))


def _get_events(value: Json) -> list[dict[str, Json]] | None:
    """Return the events of one conversation; None if the value has none."""
    if isinstance(value, dict):
        value = value.get("history", value.get("events"))
    elif value == []:
        return None  # not recognizable as a conversation
    if not isinstance(value, list) or not all(
        isinstance(event, dict) and "role" not in event for event in value
    ):
        return None
    # Some entries are neither action nor observation, such as a state change, but never all.
    return value if value == [] or any(map(_is_event, value)) else None


def _join_events(documents: Iterator[Document]) -> Iterator[Document]:
    """Yield documents; single-event lines are combined into conversations."""
    streams: dict[str, Document] = {}
    for document in documents:
        if not _is_event_line(document.raw):
            yield document
            continue
        origin = dict(document.origin or {})
        path = str(origin.get("path") or "").partition("#")[0]
        if path not in streams:
            streams[path] = Document(document.line, {**origin, "path": path} if path else None, [])
        streams[path].raw.append(document.raw)
    yield from streams.values()


def _parse_document(document: Document) -> Trajectory:
    raw = document.raw
    events = _get_events(raw)
    if events is None:
        raise BadInputError(document.line, "an OpenHands document without its events")
    metadata = raw if isinstance(raw, dict) else {}
    instance = metadata.get("instance_id") or metadata.get("id") or ""
    natural = f"{FORMAT}/{instance}" if isinstance(instance, str) and instance else ""
    if not natural and events and isinstance(events[0].get("id"), str):
        natural = f"{FORMAT}/{events[0]['id']}"  # V1 ids are unique, and the first one is stable
    trajectory = Trajectory(FORMAT, _get_key(document, natural))
    labels = {
        "instance": instance,
        "model": _get_model(metadata),
        **build_origin_labels(document.origin),
    }
    trajectory.describe(labels=labels)
    _Stream(trajectory).read(events)
    if trajectory.ended is None and isinstance(metadata.get("error"), str) and metadata["error"]:
        trajectory.ended = "failed"
    return trajectory


def _get_model(document: dict[str, Json]) -> Json:
    metadata = document.get("metadata")
    config = metadata.get("llm_config") if isinstance(metadata, dict) else None
    return config.get("model") if isinstance(config, dict) else None


def _get_key(document: Document, natural: str) -> str:
    if document.origin is None and natural and isinstance(document.raw, list):
        return build_session_key(natural)
    return build_document_key(document.origin, natural, document.raw)


class _Stream:
    """Reads the events of one conversation in order."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self._by_event: dict[Json, Call] = {}  # event id to its call
        self._by_call_id = OpenCalls()
        self._last: Call | None = None  # the oldest form matches results by order
        # Positions of calls that the agent could not parse as an action.
        self._unreadable: set[int] = set()
        self._turns: dict[str, int] = {}
        self._turn = 0

    def read(self, events: list[dict[str, Json]]) -> None:
        for event in events:
            if self.trajectory.started_us is None and not self.trajectory.calls:
                self.trajectory.started_us = parse_iso_us(event.get("timestamp"))
            if isinstance(event.get("kind"), str):
                self._v1(event)
            elif isinstance(event.get("observation"), str):
                self._observation(event)
            elif isinstance(event.get("action"), str):
                self._action(event)

    def _action(self, event: dict[str, Json]) -> None:
        metadata = event.get("tool_call_metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        action = event["action"]
        arguments = event.get("args")
        if not isinstance(arguments, dict):
            # The oldest form has the arguments among the event's fields.
            arguments = {
                name: value for name, value in event.items() if name not in ("action", "args")
            }
        if not metadata and (
            action in _INTERNAL_ACTIONS or event.get("source", "agent") != "agent"
        ):
            if action == "message" and event.get("source", "user") == "user":
                self.trajectory.describe(title=extract_text(arguments.get("content")))
            return
        response = metadata.get("model_response")
        call = self._add(
            event,
            metadata.get("function_name") or action,
            arguments,
            call_id=metadata.get("tool_call_id"),
            response_id=response.get("id") if isinstance(response, dict) else None,
        )
        if action == "finish":
            # `finish` has no observation; the conversation ends with it.
            self.trajectory.answer(call, "", "ok", parse_iso_us(event.get("timestamp")))
            self.trajectory.ended = "completed"
            self.trajectory.ended_us = parse_iso_us(event.get("timestamp"))

    def _observation(self, event: dict[str, Json]) -> None:
        metadata = event.get("tool_call_metadata")
        call = (
            self._by_event.get(event["cause"])
            if isinstance(event.get("cause"), int | str)
            else None
        )
        if call is None and isinstance(metadata, dict):
            pair = self._by_call_id.take(metadata.get("tool_call_id"))
            call = pair[1] if pair else None
        if call is None and "id" not in event:
            call, self._last = self._last, None
        if call is not None:
            content = unwrap_text_block(event.get("content", ""))
            self.trajectory.answer(
                call, content, _get_outcome_v0(event), parse_iso_us(event.get("timestamp"))
            )

    def _v1(self, event: dict[str, Json]) -> None:
        kind = event["kind"]
        if kind == "MessageEvent" and event.get("source") == "user":
            message = event.get("llm_message")
            self.trajectory.describe(
                title=extract_text(message.get("content")) if isinstance(message, dict) else ""
            )
        elif kind == "ActionEvent":
            sent = event.get("tool_call")
            arguments = event.get("action")
            if not isinstance(arguments, dict):
                arguments = sent.get("arguments") if isinstance(sent, dict) else None
            call = self._add(
                event,
                event.get("tool_name"),
                arguments,
                call_id=event.get("tool_call_id"),
                response_id=event.get("llm_response_id"),
            )
            if "action" in event and event["action"] is None:
                self._unreadable.add(call.position)
        elif "tool_call_id" in event or "action_id" in event:
            action_id = event.get("action_id")
            answered = self._by_event.get(action_id) if isinstance(action_id, str) else None
            if answered is None:
                pair = self._by_call_id.take(event.get("tool_call_id"))
                answered = pair[1] if pair else None
            if answered is not None:
                content, outcome = _parse_observation_v1(
                    event, refused=answered.position in self._unreadable
                )
                self.trajectory.answer(
                    answered, content, outcome, parse_iso_us(event.get("timestamp"))
                )

    def _add(
        self,
        event: dict[str, Json],
        tool: Json,
        arguments: Json,
        *,
        call_id: Json,
        response_id: Json,
    ) -> Call:
        # All calls in one model response are one turn.
        if not isinstance(response_id, str) or response_id not in self._turns:
            self._turn += 1
            if isinstance(response_id, str):
                self._turns[response_id] = self._turn
        turn = self._turns[response_id] if isinstance(response_id, str) else self._turn
        self.trajectory.ended = self.trajectory.ended_us = None  # continued after a finish
        call = self.trajectory.add_call(
            tool,
            arguments,
            turn=turn,
            call_id=call_id,
            occurred_us=parse_iso_us(event.get("timestamp")),
            talk=() if tool in _THOUGHT_TOOLS else _DESCRIPTIONS,
        )
        if isinstance(event.get("id"), int | str):
            self._by_event[event["id"]] = call
        self._by_call_id.add(self.trajectory, call)
        self._last = call
        return call


def _get_outcome_v0(event: dict[str, Json]) -> Outcome:
    extras = event.get("extras")
    metadata = extras.get("metadata") if isinstance(extras, dict) else None
    code = metadata.get("exit_code") if isinstance(metadata, dict) else event.get("exit_code")
    if event["observation"] == "user_rejected":
        return "refused"
    if event["observation"] == "error":
        return "error"
    return _outcome_of_exit_code(code)


def _outcome_of_exit_code(code: Json) -> Outcome:
    if not isinstance(code, int) or isinstance(code, bool) or code == 0:
        return "ok"
    return "unknown" if code == -1 else "error"  # -1: the command was still running


def _parse_observation_v1(event: dict[str, Json], *, refused: bool) -> tuple[Json, Outcome]:
    observation = event.get("observation")
    if not isinstance(observation, dict):
        # An error of the agent, or a refusal by a person. An unparsable call never ran.
        reason = event.get("error") or event.get("rejection_reason") or ""
        return reason, "refused" if refused or event["kind"] == "UserRejectObservation" else "error"
    content = observation.get("content", observation.get("output"))
    result = unwrap_text_block(content) if isinstance(content, str | list) else observation
    if observation.get("is_error") is True or observation.get("error") is True:
        return result, "error"
    metadata = observation.get("metadata")
    code = observation.get(
        "exit_code", metadata.get("exit_code") if isinstance(metadata, dict) else None
    )
    return result, _outcome_of_exit_code(code)
