"""Schemas of requests about working state: checkpoints, decisions, handoffs.

As in api/schemas/core.py, commands reject unknown fields and reports keep them in the stored body.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from api.schemas.core import (
    _PLAIN,
    Count,
    EffectKey,
    Key,
    LabelName,
    Name200,
    Name300,
    Strict,
)

CacheKey = Annotated[str, Meta(min_length=1, max_length=300, pattern=_PLAIN)]
Version = Annotated[str, Meta(max_length=200, pattern=_PLAIN)]
Text = Annotated[str, Meta(min_length=1, max_length=65_536)]
Line = Annotated[str, Meta(min_length=1, max_length=4_096)]
Section = Annotated[list[Line], Meta(max_length=200)]
Seconds = Annotated[int, Meta(ge=1, le=30 * 86_400)]
ConclusionStatus = Literal["done", "failed", "abandoned"]
Source = Annotated[str, Meta(min_length=1, max_length=160, pattern=_PLAIN)]


class CheckpointFields(msgspec.Struct, kw_only=True):
    """State of the work as described by the agent. `state` is any JSON value."""

    summary: str | None = None
    cache_keys: Annotated[list[CacheKey], Meta(max_length=100)] = []
    cursor: Name200 | None = None
    pins: Annotated[dict[LabelName, Version], Meta(max_length=100)] = {}
    state: Any = None


class WriteCheckpoint(CheckpointFields, Strict):
    """POST /sessions/{id}/checkpoints"""

    lease_epoch: Count | None = None


class DecisionFields(msgspec.Struct, kw_only=True):
    """A decision, recorded before acting on it."""

    choice: Text
    rationale: Text | None = None
    planned_action: Text | None = None
    alternatives: Annotated[list[Line], Meta(max_length=50)] = []


class RecordDecision(DecisionFields, Strict):
    """POST /sessions/{id}/decisions. `effect_key` may name an unplanned effect."""

    key: Key
    effect_key: EffectKey | None = None
    lease_epoch: Count | None = None


class ConcludeDecision(Strict):
    """POST /decisions/{id}/conclude"""

    status: ConclusionStatus
    outcome: Text
    lease_epoch: Count | None = None


class ReportedDecision(DecisionFields):
    """A reported decision.recorded. The envelope's `effect_key` names its effect."""

    decision: Key


class ReportedConclusion(msgspec.Struct, kw_only=True):
    """A reported decision.concluded."""

    decision: Key
    status: ConclusionStatus
    outcome: Text | None = None


class WaitsOn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One thing that a worker waits for.

    `ref` names a gate, message or effect by id or handle, an effect also by key. For kind `text`,
    `text` describes it.
    """

    kind: Literal["gate", "message", "effect", "text"]
    ref: Name300 | None = None
    text: Line | None = None


class HandoffFields(msgspec.Struct, kw_only=True):
    """A handoff to the next worker: five sections of short texts."""

    in_progress: Section = []
    decided: Section = []
    needs_attention: Section = []
    can_wait: Section = []
    waits_on: Annotated[list[WaitsOn], Meta(max_length=100)] = []


class WriteHandoff(HandoffFields, Strict):
    """POST /sessions/{id}/handoffs"""

    lease_epoch: Count | None = None


class AcceptHandoff(Strict):
    """POST /handoffs/{id}/accept"""

    lease_epoch: Count | None = None


class ReportedHandoff(HandoffFields):
    """A reported handoff.written. `handoff` is its key in the session."""

    handoff: EffectKey


class ReportedAcceptance(msgspec.Struct, kw_only=True):
    """A reported handoff.accepted."""

    handoff: EffectKey


class ReportedFact(msgspec.Struct, kw_only=True):
    """A reported fact.observed by the envelope's source. `value` is any JSON value."""

    name: Key
    value: Any
    fresh_s: Seconds | None = None  # how long the value is valid


class ObserveFact(ReportedFact, Strict):
    """POST /sessions/{id}/facts"""

    source: Source
    lease_epoch: Count | None = None


class FinishTask(Strict):
    """POST /tasks/{id}/done"""

    lease_epoch: Count | None = None


REPORTED: dict[str, type[msgspec.Struct]] = {
    "checkpoint.written": CheckpointFields,
    "decision.recorded": ReportedDecision,
    "decision.concluded": ReportedConclusion,
    "handoff.written": ReportedHandoff,
    "handoff.accepted": ReportedAcceptance,
    "fact.observed": ReportedFact,
}

# Prepared at import: see api/schemas/core.py.
for _shape in tuple(globals().values()):
    if isinstance(_shape, type) and issubclass(_shape, msgspec.Struct):
        msgspec.json.Decoder(_shape)
