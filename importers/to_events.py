"""Converts trajectories to facts, artifacts and batches. Pure functions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from importers.trajectory import Call, Json, Trajectory, hash_json

# The API's limits less a margin, because the server adds data or counts differently.
MAX_BATCH_ITEMS = 500
MAX_BATCH_BYTES = 3_500_000  # bytes; the limit is 4 MiB
MAX_PAYLOAD_BYTES = (
    224 * 1024
)  # bytes of one payload inside an item; the limit of an item is 256 KiB
MAX_ARTIFACT_BYTES = 64 * 1024 * 1024  # bytes
MAX_PAYLOAD_DEPTH = 28  # levels; the limit of an item is 32

_PLAIN_ID = re.compile(r"[\x21-\x7e]{1,200}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(slots=True, frozen=True)
class Payload:
    """Bytes that do not fit into an item, stored as an artifact of an effect."""

    session: str
    effect_key: str
    type: str  # "arguments" or "result"
    content: bytes
    media_type: str
    sha256: str

    @property
    def request_id(self) -> str:
        """The idempotency key for recording the artifact, the same in every run."""
        return build_event_id("artifact", self.session, self.effect_key, self.type, self.sha256)


@dataclass(slots=True)
class Shipment:
    """The facts of one trajectory in order, and the payloads that they reference."""

    facts: list[dict[str, Json]] = field(default_factory=list)
    payloads: list[Payload] = field(default_factory=list)


class TooLargeError(Exception):
    """A payload is too large even for an artifact."""

    def __init__(self, session: str, effect_key: str, size: int) -> None:
        super().__init__(
            f"session {session}, call {effect_key}: {size:,} bytes; an artifact has at most"
            f" {MAX_ARTIFACT_BYTES:,}"
        )


def build_shipment(trajectory: Trajectory) -> Shipment:
    """Build the facts of a trajectory; equal sources give equal facts in every run.

    Ids follow from format, session key, kind and sequence, or from the call where its id is unique.
    A longer version of a source repeats the facts of the shorter one exactly and adds its own. A
    call without a result is only planned and dispatched. A refused call is not dispatched; it
    failed as `rejected`: nothing happened.
    """
    shipment = Shipment()
    shipment.facts.append(_build_session_fact(trajectory))
    for call in trajectory.calls:
        key = build_effect_key(call)
        base = {"session": trajectory.key, "effect_key": key}
        planned = {
            "tool": call.tool,
            "arguments": _inline_or_reference(
                shipment, trajectory, key, "arguments", call.arguments
            ),
        }
        planned["turn"] = str(call.turn)
        if call.free_text:
            planned["free_text"] = list(call.free_text)
        if call.call_id is not None and _PLAIN_ID.fullmatch(call.call_id):
            planned["call_id"] = call.call_id
        sequence, when = call.sequence, call.occurred_us
        shipment.facts.append(
            _build_fact(trajectory, "effect.planned", sequence, when, base | planned)
        )
        if call.is_refused:  # never ran: no dispatch, one rejected attempt
            shipment.facts.append(_build_refusal_fact(shipment, trajectory, call, base))
            continue
        shipment.facts.append(
            _build_fact(trajectory, "effect.dispatched", sequence + 1, when, base | {"attempt": 1})
        )
        if call.result is not None:
            result = _inline_or_reference(shipment, trajectory, key, "result", call.result.content)
            values = base | {"attempt": 1, "outcome": call.result.outcome, "result": result}
            shipment.facts.append(
                _build_fact(
                    trajectory,
                    "effect.acknowledged",
                    call.result.sequence,
                    call.result.finished_us,
                    values,
                )
            )
    if trajectory.ended is not None:
        shipment.facts.append(
            _build_fact(
                trajectory,
                "session.ended",
                trajectory.last_sequence + 1,
                trajectory.ended_us,
                {"session": trajectory.key, "status": trajectory.ended},
            )
        )
    return shipment


def build_effect_key(call: Call) -> str:
    """Return `call_id:position`, or `call:position` for calls without an id.

    A call with a unique id is the first that has it, wherever it stands: `call_id:1`.
    """
    if call.call_id is None:
        return f"call:{call.position}"
    number = 1 if call.has_unique_id else call.position
    if _PLAIN_ID.fullmatch(call.call_id):
        return f"{call.call_id}:{number}"
    return f"{build_event_id('call', call.call_id)[:32]}:{number}"


def build_event_id(*parts: str | int) -> str:
    """Return a stable id of 64 hex digits for `parts`."""
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def split_batches(facts: Iterable[dict[str, Json]]) -> Iterator[list[bytes]]:
    """Yield the facts as encoded items in order, in batches within the API's limits."""
    batch: list[bytes] = []
    size = 2
    for fact in facts:
        item = encode_json(fact)
        if batch and (len(batch) >= MAX_BATCH_ITEMS or size + len(item) + 1 > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 2
        batch.append(item)
        size += len(item) + 1
    if batch:
        yield batch


def encode_json(value: Json) -> bytes:
    """Encode compact JSON in UTF-8. Raises ValueError for NaN and lone surrogates."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        "utf-8"
    )


def _build_refusal_fact(
    shipment: Shipment, trajectory: Trajectory, call: Call, base: dict[str, Json]
) -> dict[str, Json]:
    assert call.result is not None  # noqa: S101 - a refused call has a result
    detail = _inline_or_reference(
        shipment, trajectory, build_effect_key(call), "result", call.result.content
    )
    values = base | {"attempt": 1, "reason": "rejected", "detail": detail}
    return _build_fact(
        trajectory, "effect.failed", call.result.sequence, call.result.finished_us, values
    )


def _build_session_fact(trajectory: Trajectory) -> dict[str, Json]:
    values: dict[str, Any] = {"session": trajectory.key, "mode": "reported"}
    if trajectory.title:
        values["title"] = trajectory.title
    if trajectory.branch:
        values["branch"] = trajectory.branch
    if trajectory.parent_key is not None:
        values["parent"] = trajectory.parent_key
    values["labels"] = {"format": trajectory.format, **trajectory.labels}
    return _build_fact(trajectory, "session.started", 0, trajectory.started_us, values)


def _build_fact(
    trajectory: Trajectory, kind: str, sequence: int, when: int | None, values: dict[str, Json]
) -> dict[str, Json]:
    identity: str | int = sequence
    if trajectory.has_unique_ids:  # another file of the session may describe it otherwise
        identity = values.get("effect_key") or hash_json([when, values])
    fact: dict[str, Json] = {
        "id": build_event_id(trajectory.format, trajectory.key, kind, identity),
        "kind": kind,
    }
    if when is not None:
        fact["occurred_us"] = when
    if not trajectory.has_unique_ids:
        fact["producer_seq"] = sequence
    return fact | values


def _inline_or_reference(
    shipment: Shipment, trajectory: Trajectory, key: str, role: str, value: Json
) -> Json:
    """Return `value` if it fits into an item, else a reference to an artifact."""
    try:
        content = encode_json(value)
        is_inline = (
            len(content) <= MAX_PAYLOAD_BYTES
            and not _is_deeper(value, MAX_PAYLOAD_DEPTH)
            and _has_64_bit_integers(value)
        )
    except (ValueError, RecursionError):
        is_inline = False
    if is_inline:
        return value
    content, media_type = _encode_artifact(value)
    if len(content) > MAX_ARTIFACT_BYTES:
        raise TooLargeError(trajectory.key, key, len(content))
    sha256 = hashlib.sha256(content).hexdigest()
    shipment.payloads.append(Payload(trajectory.key, key, role, content, media_type, sha256))
    return {"artifact": {"sha256": sha256, "size": len(content), "media_type": media_type}}


def _encode_artifact(value: Json) -> tuple[bytes, str]:
    if isinstance(value, str) and not _SURROGATE.search(value):
        return value.encode("utf-8"), "text/plain; charset=utf-8"
    # Escapes preserve lone surrogates; NaN and infinities stay as written in the source.
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode(
        "ascii"
    ), "application/json"


def _is_deeper(value: Json, levels: int) -> bool:
    if isinstance(value, dict):
        return levels == 0 or any(_is_deeper(inner, levels - 1) for inner in value.values())
    if isinstance(value, list):
        return levels == 0 or any(_is_deeper(inner, levels - 1) for inner in value)
    return False


def _has_64_bit_integers(value: Json) -> bool:
    """Return whether every integer in `value` fits into 64 bits."""
    if isinstance(value, dict):
        return all(_has_64_bit_integers(inner) for inner in value.values())
    if isinstance(value, list):
        return all(_has_64_bit_integers(inner) for inner in value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63
