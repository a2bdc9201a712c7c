"""What agents may send, as typed shapes. The strict reader has parsed the JSON; here every field gets its type.

In the command lane an unknown field is refused; the evidence lane reads the same shapes and keeps unknown fields in the
body. Lengths are those of the columns. An identifier is text without control characters; free text may hold anything.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

# Control characters (NUL among them) have no place in what names a thing. `$` alone would let a last newline pass in
# Python; the look-ahead means the same in every dialect that reads our JSON Schema.
_END = "$(?!\\n)"
_PLAIN = "^[^\\x00-\\x1f\\x7f-\\x9f]*" + _END
_KIND = "^[a-z][a-z_]*\\.[a-z][a-z_]*" + _END
_SHA256 = "^[0-9a-f]{64}" + _END
_ID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}" + _END
# What whoever breaks a pattern is told instead of it.
PATTERNS_IN_WORDS = {
    _PLAIN: "Expected text without control characters",
    _KIND: "Expected a kind of the form `subject.verb`, in small letters",
    _SHA256: "Expected a SHA-256 as 64 small hex digits",
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
Labels = Annotated[dict[LabelName, Label], Meta(max_length=32)]
Moment = Annotated[int, Meta(ge=0, le=2**53 - 1)]  # microseconds since the epoch
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Number = Annotated[int, Meta(ge=1, le=1_000_000)]
Priority = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
Sha256 = Annotated[str, Meta(pattern=_SHA256)]
Id = Annotated[str, Meta(pattern=_ID)]
Mode = Literal["leased", "reported", "one_shot"]
Ended = Literal["completed", "failed", "cancelled"]
TaskState = Literal["pending", "running", "blocked", "done", "failed", "cancelled"]
ItemState = Literal["pending", "done", "failed"]
Outcome = Literal["ok", "error", "unknown"]
Reason = Literal["rejected", "timeout", "error"]
ToolClass = Literal["read_only", "natural", "keyed", "joint", "probeable", "compensable", "opaque"]


class Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A command: an unknown field is a mistake that the agent should hear of."""


class Envelope(msgspec.Struct, kw_only=True):
    """What every item of `POST /events` carries, beside the fields of its kind."""

    id: EntryId
    kind: Annotated[str, Meta(max_length=64, pattern=_KIND)]
    session: Key
    occurred_us: Moment | None = None
    effect_key: EffectKey | None = None
    attempt: Number | None = None
    source: Annotated[str, Meta(min_length=1, max_length=160, pattern=_PLAIN)] | None = None
    producer_seq: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    lease_epoch: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


class Target(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What an effect acts upon."""

    repository: Annotated[str, Meta(min_length=1, max_length=200, pattern=_PLAIN)] | None = None
    ref: Name200 | None = None
    environment: Name64 | None = None
    resource: Name300 | None = None


class SessionFields(msgspec.Struct, kw_only=True):
    """The description of a session; the first one stands."""

    title: Title = ""
    repository: Annotated[str, Meta(min_length=1, max_length=200, pattern=_PLAIN)] | None = None
    branch: Name200 = ""
    parent: Key | None = None
    branched_from: Key | None = None
    mode: Mode | None = None
    owner: Annotated[str, Meta(min_length=1, max_length=150, pattern=_PLAIN)] | None = None
    on_behalf_of: Annotated[str, Meta(min_length=1, max_length=150, pattern=_PLAIN)] | None = None
    labels: Labels = {}


class OpenSession(SessionFields, Strict):
    """POST /sessions"""

    key: Key


class EndSession(Strict):
    """POST /sessions/{id}/end"""

    status: Ended
    lease_epoch: Count | None = None


class ReportedEnd(msgspec.Struct, kw_only=True):
    """session.ended, reported."""

    status: Ended


class TaskFields(msgspec.Struct, kw_only=True):
    """What may be said of a task."""

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
    """POST /gates/wait: each gate with the version the agent knows."""

    gates: Annotated[dict[Id, Annotated[int, Meta(ge=0, le=2**31 - 1)]], Meta(min_length=1, max_length=100)]
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
    """An intention: a tool and its arguments, and what is known about it. `arguments` is any JSON value."""

    tool: ToolName
    arguments: Any = {}
    effect_key: EffectKey | None = None
    call_id: Name200 | None = None
    ordinal: Count = 0  # how often this intent was sent in this session before
    turn: Name200 | None = None
    target: Target | None = None
    task: Key | None = None
    preconditions: dict[str, Any] | None = None
    why: str | None = None
    parent_effect: Annotated[str, Meta(max_length=36, pattern=_PLAIN)] | None = None
    tool_class: ToolClass | None = None  # a claim: shown, never used
    free_text: Annotated[list[Name100], Meta(max_length=32)] = []  # top-level arguments left out of the intent


class PlanEffect(PlanFields, Strict):
    """POST /effects"""

    session: Key
    lease_epoch: Count | None = None


class CompensateEffect(PlanFields, Strict):
    """POST /effects/{id}/compensate"""

    lease_epoch: Count | None = None


class ReportedPlan(PlanFields):
    """effect.planned, reported."""

    compensates: EffectKey | None = None  # the effect key of what it compensates, in the same session


class DispatchEffect(Strict):
    """POST /effects/{id}/dispatch; one of `arguments` and `intent_digest` is needed."""

    process: Annotated[str, Meta(min_length=1, max_length=64, pattern=_PLAIN)]
    arguments: Any = msgspec.UNSET
    intent_digest: Annotated[str, Meta(max_length=67, pattern=_PLAIN)] | None = None
    free_text: Annotated[list[Name100], Meta(max_length=32)] = []
    preconditions: dict[str, Any] | None = None
    replays: Number | None = None  # the attempt in doubt whose place the next one takes
    lease_epoch: Count | None = None


class ReportedDispatch(msgspec.Struct, kw_only=True):
    """effect.dispatched, reported."""

    process: Name64 | None = None


class AnswerFields(msgspec.Struct, kw_only=True):
    """What came of an attempt. `result` is any JSON value."""

    outcome: Outcome
    external_reference: Name300 | None = None
    result: Any = None


class AcknowledgeEffect(AnswerFields, Strict):
    """POST /effects/{id}/acknowledge"""

    attempt: Number
    lease_epoch: Count | None = None


class FailFields(msgspec.Struct, kw_only=True):
    """Why an attempt failed: rejected (nothing happened), timeout or error (nobody knows)."""

    reason: Reason
    detail: Any = None


class FailEffect(FailFields, Strict):
    """POST /effects/{id}/fail"""

    attempt: Number
    lease_epoch: Count | None = None


class ArtifactFields(msgspec.Struct, kw_only=True):
    """Something made or kept, named by its content's SHA-256. `uri` is shown, never fetched."""

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
    """task.created and task.changed, reported."""

    task: Key


class ReportedTaskEnd(msgspec.Struct, kw_only=True):
    """task.done, reported."""

    task: Key


class ReportedItem(msgspec.Struct, kw_only=True):
    """item.done and item.failed, reported."""

    task: Key
    item: Key
    detail: Any = None


class Free(msgspec.Struct, kw_only=True):
    """Any other kind: kept as it is, moves nothing."""


REPORTED: dict[str, type[msgspec.Struct]] = {
    "session.started": SessionFields,
    "session.ended": ReportedEnd,
    "task.created": ReportedTask,
    "task.changed": ReportedTask,
    "task.done": ReportedTaskEnd,
    "item.done": ReportedItem,
    "item.failed": ReportedItem,
    "effect.planned": ReportedPlan,
    "effect.dispatched": ReportedDispatch,
    "effect.acknowledged": AnswerFields,
    "effect.failed": FailFields,
    "effect.superseded": Free,
    "artifact.recorded": ArtifactFields,
}

# msgspec prepares a shape at its first use, and two threads that did so at once ended the server: better now than then.
for _shape in tuple(globals().values()):
    if isinstance(_shape, type) and issubclass(_shape, msgspec.Struct):
        msgspec.json.Decoder(_shape)
