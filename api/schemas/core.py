"""Schemas of requests as msgspec structs: sessions, tasks, effects, artifacts.

The command lane rejects unknown fields. The evidence lane uses the same fields and keeps unknown
ones in the stored body. Maximum lengths equal those of the columns. Identifiers have no control
characters; free text may contain anything.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

# Identifiers have no control characters, including NUL. In Python, `$` alone also matches before a
# final newline; the look-ahead has the same meaning in every regex dialect that reads JSON Schema.
_END = "$(?!\\n)"
_PLAIN = "^[^\\x00-\\x1f\\x7f-\\x9f]*" + _END
_KIND = "^[a-z][a-z_]*\\.[a-z][a-z_]*" + _END
_SHA256 = "^[0-9a-f]{64}" + _END
_ID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}" + _END
# Error texts that replace the patterns.
PATTERN_ERRORS = {
    _PLAIN: "Expected text without control characters",
    _KIND: "Expected a kind of the form `subject.verb` in lower case",
    _SHA256: "Expected a SHA-256 as 64 lower-case hex digits",
    _ID: "Expected a UUID",
}

Key = Annotated[str, Meta(min_length=1, max_length=200, pattern=_PLAIN)]
EffectKey = Annotated[str, Meta(min_length=1, max_length=300, pattern=_PLAIN)]
EntryId = Annotated[str, Meta(min_length=1, max_length=64, pattern=_PLAIN)]
ToolName = Annotated[str, Meta(min_length=1, max_length=100, pattern=_PLAIN)]
Name64 = Annotated[str, Meta(max_length=64, pattern=_PLAIN)]
Name100 = Annotated[str, Meta(max_length=100, pattern=_PLAIN)]
Name200 = Annotated[str, Meta(max_length=200, pattern=_PLAIN)]
Name300 = Annotated[str, Meta(max_length=300, pattern=_PLAIN)]
Title = Annotated[str, Meta(max_length=300)]
Label = Annotated[str, Meta(max_length=200, pattern=_PLAIN)]
LabelName = Annotated[str, Meta(min_length=1, max_length=64, pattern=_PLAIN)]
# What the agent sends along: any JSON, shown and never compared; at most 16 KiB.
SentMeta = dict[str, Any]
Labels = Annotated[dict[LabelName, Label], Meta(max_length=32)]
TimeUs = Annotated[int, Meta(ge=0, le=2**53 - 1)]  # microseconds since the epoch
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Number = Annotated[int, Meta(ge=1, le=1_000_000)]
Priority = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
Sha256 = Annotated[str, Meta(pattern=_SHA256)]
Id = Annotated[str, Meta(pattern=_ID)]
Mode = Literal["leased", "reported", "one_shot"]
OpenStatus = Literal["running", "waiting", "suspended"]
SessionEndStatus = Literal["completed", "failed", "cancelled"]
TaskState = Literal["pending", "running", "blocked", "done", "failed", "cancelled"]
ItemState = Literal["pending", "done", "failed"]
Outcome = Literal["ok", "error", "unknown"]
Reason = Literal["rejected", "timeout", "error"]
ProbeResult = Literal["hit", "miss", "error", "several"]
ToolClass = Literal[
    "read_only",
    "idempotent",
    "idempotency_key",
    "transactional",
    "probeable",
    "compensable",
    "opaque",
]


class Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A command; unknown fields are errors."""


class Envelope(msgspec.Struct, kw_only=True):
    """Fields of every item of `POST /events`, in addition to the fields of its kind."""

    id: EntryId
    kind: Annotated[str, Meta(max_length=64, pattern=_KIND)]
    session: Key
    occurred_us: TimeUs | None = None
    effect_key: EffectKey | None = None
    attempt: Number | None = None
    source: Annotated[str, Meta(min_length=1, max_length=160, pattern=_PLAIN)] | None = None
    producer_seq: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    lease_epoch: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


class Target(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What an effect acts on."""

    repository: Annotated[str, Meta(min_length=1, max_length=200, pattern=_PLAIN)] | None = None
    ref: Name200 | None = None
    environment: Name64 | None = None
    resource: Name300 | None = None


class SessionFields(msgspec.Struct, kw_only=True):
    """Description of a session. Only the first description is used."""

    title: Title = ""
    repository: Annotated[str, Meta(min_length=1, max_length=200, pattern=_PLAIN)] | None = None
    branch: Name200 = ""
    parent: Key | None = None
    branched_from: Key | None = None
    mode: Mode | None = None
    owner: Annotated[str, Meta(min_length=1, max_length=150, pattern=_PLAIN)] | None = None
    on_behalf_of: Annotated[str, Meta(min_length=1, max_length=150, pattern=_PLAIN)] | None = None
    labels: Labels = {}
    meta: SentMeta = {}


class OpenSession(SessionFields, Strict):
    """POST /sessions"""

    key: Key


class EndSession(Strict):
    """POST /sessions/{id}/end"""

    status: SessionEndStatus
    lease_epoch: Count | None = None


class ReportedEnd(msgspec.Struct, kw_only=True):
    """A reported session.ended."""

    status: SessionEndStatus


class ChangeFields(msgspec.Struct, kw_only=True):
    """Changes to an open session. Omitted fields keep their values."""

    title: Title | None = None
    cursor: Name200 | None = None
    status: OpenStatus | None = None
    waiting_on: Name200 | None = None  # with status "waiting"
    merge_into: Key | None = None
    merge_intent: Name300 | None = None


class ChangeSession(ChangeFields, Strict):
    """POST /sessions/{id}/change"""

    lease_epoch: Count | None = None


class MergeSession(Strict):
    """POST /sessions/{id}/merged"""

    into: Key
    lease_epoch: Count | None = None


class ReportedBranch(msgspec.Struct, kw_only=True):
    """A reported session.branched."""

    branched_from: Key


class ReportedMerge(msgspec.Struct, kw_only=True):
    """A reported session.merged."""

    into: Key


class TaskFields(msgspec.Struct, kw_only=True):
    """Fields of a task."""

    title: Title | None = None
    parent: Key | None = None
    state: TaskState | None = None
    priority: Priority | None = None
    worker: Name100 | None = None
    branch_label: Name200 | None = None


class CreateTask(TaskFields, Strict):
    """POST /sessions/{id}/tasks"""

    key: Key
    lease_epoch: Count | None = None


class ChangeTask(Strict):
    """POST /tasks/{id}/change"""

    title: Title | None = None
    state: TaskState | None = None
    priority: Priority | None = None
    worker: Name100 | None = None
    branch_label: Name200 | None = None
    lease_epoch: Count | None = None


class CancelGate(Strict):
    """POST /gates/{id}/cancel"""

    lease_epoch: Count | None = None


class SupersedeEffect(Strict):
    """POST /effects/{id}/supersede"""

    lease_epoch: Count | None = None


class WaitForGates(Strict):
    """POST /gates/wait. `gates` maps gate ids to the last version that you have seen."""

    gates: Annotated[
        dict[Id, Annotated[int, Meta(ge=0, le=2**31 - 1)]], Meta(min_length=1, max_length=100)
    ]
    wait: Annotated[int, Meta(ge=0, le=55)] = 0


class ItemEntry(Strict):
    """One item of a task."""

    key: Key
    state: ItemState
    detail: str | None = None


class PutItems(Strict):
    """POST /tasks/{id}/items"""

    items: Annotated[list[ItemEntry], Meta(min_length=1, max_length=1000)]
    lease_epoch: Count | None = None


class PlanFields(msgspec.Struct, kw_only=True):
    """A planned tool call with its context. `arguments` is any JSON value."""

    tool: ToolName
    arguments: Any = {}
    effect_key: EffectKey | None = None
    call_id: Name200 | None = None
    ordinal: Count = 0  # number of earlier plans with this intent in this session
    turn: Name200 | None = None
    target: Target | None = None
    task: Key | None = None
    preconditions: dict[str, Any] | None = None
    why: str | None = None
    parent_effect: Annotated[str, Meta(max_length=36, pattern=_PLAIN)] | None = None
    tool_class: ToolClass | None = None  # shown as claimed by the agent; no decision uses it
    # Top-level arguments that the intent digest ignores.
    free_text: Annotated[list[Name100], Meta(max_length=32)] = []
    meta: SentMeta = {}


class PlanEffect(PlanFields, Strict):
    """POST /effects"""

    session: Key
    lease_epoch: Count | None = None


class CompensateEffect(PlanFields, Strict):
    """POST /effects/{id}/compensate"""

    lease_epoch: Count | None = None


class ReportedPlan(PlanFields):
    """A reported effect.planned."""

    compensates: EffectKey | None = (
        None  # effect key of the compensated effect, in the same session
    )


class DispatchEffect(Strict):
    """POST /effects/{id}/dispatch. Send `arguments` or `intent_digest`."""

    process: Annotated[str, Meta(min_length=1, max_length=64, pattern=_PLAIN)]
    arguments: Any = msgspec.UNSET
    intent_digest: Annotated[str, Meta(max_length=67, pattern=_PLAIN)] | None = None
    free_text: Annotated[list[Name100], Meta(max_length=32)] = []
    preconditions: dict[str, Any] | None = None
    replays: Number | None = None  # the attempt with an unknown outcome that this attempt replaces
    lease_epoch: Count | None = None


class ReportedDispatch(msgspec.Struct, kw_only=True):
    """A reported effect.dispatched."""

    process: Name64 | None = None


class OutcomeFields(msgspec.Struct, kw_only=True):
    """Outcome of an attempt. `result` is any JSON value."""

    outcome: Outcome
    external_reference: Name300 | None = None
    result: Any = None


class AcknowledgeEffect(OutcomeFields, Strict):
    """POST /effects/{id}/acknowledge"""

    attempt: Number
    lease_epoch: Count | None = None


class FailFields(msgspec.Struct, kw_only=True):
    """Why an attempt failed.

    `rejected`: nothing happened. `timeout` and `error`: the outcome is unknown.
    """

    reason: Reason
    detail: Any = None


class FailEffect(FailFields, Strict):
    """POST /effects/{id}/fail"""

    attempt: Number
    lease_epoch: Count | None = None


class ProbeFields(msgspec.Struct, kw_only=True):
    """Result of a probe.

    `result`: `hit` (it happened), `miss` (it did not happen), `several` (it happened more than
    once) or `error` (the probe failed; the outcome is still unknown). `began_us` is when the probe
    began, at best the `as_of_us` of the verdict that asked for it: a miss proves absence only if
    the probe began after every request had ended. `external_reference` is the id that the remote
    gives a hit.
    """

    result: ProbeResult
    external_reference: Name300 | None = None
    began_us: TimeUs | None = None
    detail: Any = None


class ProbeEffect(ProbeFields, Strict):
    """POST /effects/{id}/probe"""

    attempt: Number
    lease_epoch: Count | None = None


class ReportedProbe(ProbeFields):
    """A reported effect.probed."""


class ArtifactFields(msgspec.Struct, kw_only=True):
    """An artifact, identified by its SHA-256. `uri` is shown, never fetched."""

    type: Annotated[str, Meta(min_length=1, max_length=64, pattern=_PLAIN)]
    sha256: Sha256
    size: Annotated[int, Meta(ge=0, le=2**53 - 1)]
    media_type: Annotated[str, Meta(min_length=1, max_length=100, pattern=_PLAIN)]
    retention: Annotated[str, Meta(min_length=1, max_length=32, pattern=_PLAIN)] = "standard"
    uri: Annotated[str, Meta(max_length=2000, pattern=_PLAIN)] = ""
    name: Name300 = ""


class RecordArtifact(ArtifactFields, Strict):
    """POST /artifacts"""

    session: Key
    effect: Id | None = None
    lease_epoch: Count | None = None


class ReportedTask(TaskFields):
    """A reported task.created or task.changed."""

    task: Key


class ReportedTaskEnd(msgspec.Struct, kw_only=True):
    """A reported task.done."""

    task: Key


class ReportedItem(msgspec.Struct, kw_only=True):
    """A reported item.done or item.failed."""

    task: Key
    item: Key
    detail: Any = None


class ReportedDescription(msgspec.Struct, kw_only=True):
    """A reported session.described."""

    meta: SentMeta


class OtherFact(msgspec.Struct, kw_only=True):
    """A fact of any other kind: stored as sent, changes no state."""


REPORTED: dict[str, type[msgspec.Struct]] = {
    "session.started": SessionFields,
    "session.changed": ChangeFields,
    "session.branched": ReportedBranch,
    "session.merged": ReportedMerge,
    "session.ended": ReportedEnd,
    "session.described": ReportedDescription,
    "task.created": ReportedTask,
    "task.changed": ReportedTask,
    "task.done": ReportedTaskEnd,
    "item.done": ReportedItem,
    "item.failed": ReportedItem,
    "effect.planned": ReportedPlan,
    "effect.dispatched": ReportedDispatch,
    "effect.acknowledged": OutcomeFields,
    "effect.failed": FailFields,
    "effect.probed": ReportedProbe,
    "effect.superseded": OtherFact,
    "artifact.recorded": ArtifactFields,
}

# msgspec prepares a struct on first use. Two threads doing so at once crashed the server, so every
# struct is prepared at import.
for _shape in tuple(globals().values()):
    if isinstance(_shape, type) and issubclass(_shape, msgspec.Struct):
        msgspec.json.Decoder(_shape)
