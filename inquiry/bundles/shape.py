"""Format of a session bundle: exported columns and the JSON Schema.

Columns are listed only here; their types are those of the tables. A new column of a table is
exported only if listed here. A change that an older reader would misread raises VERSION.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.db import models

from approvals.models import Exemption, Gate, Vote
from ledger.models import Attempt, Effect
from ledger.models_holds import Hold
from ledger.models_tools import Tool
from sessions.models import Artifact, Item, Session, Task
from sessions.models_leases import Lease
from sessions.models_state import Checkpoint, Decision, Handoff, ObservedFact

FORMAT: Final = "gatebook.session"
VERSION: Final = 1
Shape = dict[str, Any]

# Columns exported unchanged. Ids and references have their own names, below.
COLUMNS: Final[Mapping[type[models.Model], tuple[str, ...]]] = {
    Session: (
        "key",
        "branch",
        "title",
        "mode",
        "status",
        "waiting_on",
        "cursor",
        "labels",
        "merge_intent",
        "said",
        "opened_position",
        "effect_count",
        "created_at_us",
        "seen_at_us",
        "started_at_us",
        "ended_at_us",
        "started_mark",
        "status_mark",
        "resumes",
        "version",
    ),
    Task: (
        "key",
        "title",
        "state",
        "priority",
        "worker",
        "branch_label",
        "opened_position",
        "created_at_us",
        "updated_at_us",
        "done_at_us",
        "created_mark",
        "said",
        "done_mark",
        "version",
    ),
    Item: ("key", "state", "mark", "changed_at_us"),
    Artifact: (
        "type",
        "name",
        "uri",
        "sha256",
        "size",
        "media_type",
        "retention",
        "stored_at_us",
        "opened_position",
        "created_at_us",
    ),
    Decision: (
        "key",
        "status",
        "recorded_position",
        "concluded_position",
        "recorded_mark",
        "concluded_mark",
        "opened_position",
        "created_at_us",
        "concluded_at_us",
        "version",
    ),
    Handoff: (
        "key",
        "size",
        "waits_on",
        "written_position",
        "written_mark",
        "accepted_mark",
        "opened_position",
        "created_at_us",
        "accept_by_us",
        "accepted_at_us",
        "version",
    ),
    Checkpoint: (
        "cache_keys",
        "cursor",
        "pins",
        "size",
        "mark",
        "opened_position",
        "created_at_us",
    ),
    ObservedFact: (
        "name",
        "source",
        "digest",
        "mark",
        "position",
        "opened_position",
        "observed_at_us",
        "fresh_until_us",
    ),
    Lease: (
        "kind",
        "process",
        "epoch",
        "acquired_at_us",
        "beat_at_us",
        "progress_at_us",
        "expires_at_us",
        "released_at_us",
        "takeovers",
        "opened_position",
    ),
    Tool: (
        "name",
        "tool_class",
        "reversibility",
        "deadline_s",
        "request_lifetime_s",
        "key_window_s",
        "probe",
        "undo",
        "max_attempts",
        "max_probes",
        "description",
    ),
    Effect: (
        "effect_key",
        "opened_position",
        "tool",
        "claimed_class",
        "intent_digest",
        "call_id",
        "turn",
        "ref",
        "ref_class",
        "ref_patterns_version",
        "environment",
        "resource",
        "undoes",
        "lane",
        "plan_position",
        "redactions",
        "judged",
        "judged_by",
        "judged_as",
        "enforced",
        "leave",
        "leave_basis",
        "leave_ref",
        "leave_until_us",
        "leave_aside",
        "leave_aside_until_us",
        "state",
        "outcome",
        "attempt_count",
        "failure_reason",
        "external_reference",
        "violates",
        "planned_at_us",
        "dispatched_at_us",
        "settled_at_us",
        "received_us",
        "changed_us",
        "deadline_us",
        "planned_mark",
        "superseded_mark",
        "resolved_mark",
        "resolution",
        "compensated",
        "undone",
        "version",
        "moved_refs",
    ),
    Attempt: (
        "number",
        "remote_key",
        "replaces",
        "verdict_row",
        "process",
        "lease_epoch",
        "lane",
        "leave",
        "is_open",
        "replaced",
        "outcome",
        "failure_reason",
        "external_reference",
        "dispatch_key",
        "received_us",
        "heard_us",
        "dispatched_at_us",
        "acknowledged_at_us",
        "failed_at_us",
        "answer_position",
        "dispatched_mark",
        "acknowledged_mark",
        "failed_mark",
    ),
    Gate: (
        "opened_position",
        "plan_position",
        "digest",
        "intent_digest",
        "preconditions_digest",
        "requirement",
        "requirement_hash",
        "rule",
        "risk",
        "reversibility",
        "tool",
        "repository_name",
        "self_approval",
        "minimum",
        "deny_threshold",
        "step_up",
        "reason_of_yes",
        "status",
        "reason",
        "version",
        "requested_at_us",
        "decide_by_us",
        "leave_for_s",
        "decided_at_us",
        "leave_until_us",
        "used_at_us",
        "used_attempt",
        "ended_at_us",
    ),
    Vote: (
        "actor",
        "answer",
        "team",
        "card_sha256",
        "shown_version",
        "shown_digest",
        "shown_at_us",
        "view_complete",
        "step_up",
        "password_at_us",
        "reason_characters",
        "position",
        "voted_at_us",
    ),
    Exemption: (
        "tool",
        "rule",
        "agent",
        "repository",
        "ref",
        "environment",
        "opened_position",
        "granted_at_us",
        "minimum",
        "in_force_at_us",
        "ends_at_us",
        "revoked_at_us",
        "uses",
        "used_at_us",
    ),
    Hold: ("scope", "set_at_us"),
}
# Columns that are journal positions; an import maps each to the new journal.
POSITIONS: Final = frozenset(
    {
        "opened_position",
        "plan_position",
        "answer_position",
        "position",
        "recorded_position",
        "concluded_position",
        "written_position",
    }
)
# Parts of the document without a table; an import stores them unchanged.
BESIDE: Final = (
    "origin",
    "links",
    "left_out",
    "exemptions",
    "stops",
    "leases",
    "resume",
    "owner",
    "on_behalf_of",
)

_TEXT: Final[Shape] = {"type": "string"}
_ID: Final[Shape] = {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
_HEX: Final[Shape] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_COUNT: Final[Shape] = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_FLAG: Final[Shape] = {"type": "boolean"}
_ANY: Final[Shape] = {"type": "object"}


def _or_null(shape: Shape) -> Shape:
    return {"anyOf": [shape, {"type": "null"}]}


def _list(shape: Shape) -> Shape:
    return {"type": "array", "items": shape}


def _object(**properties: Shape) -> Shape:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


def _column(field: Any) -> Shape:
    """Return the JSON Schema of a column."""
    shape: Shape
    if isinstance(field, models.BooleanField):
        shape = dict(_FLAG)
    elif isinstance(field, models.JSONField):
        shape = {"type": ["object", "array"]}
    elif isinstance(field, models.IntegerField):
        bits = 63 if isinstance(field, models.BigIntegerField) else 31
        shape = {"type": "integer", "minimum": -(2**bits), "maximum": 2**bits - 1}
    else:
        shape = {"type": "string", "maxLength": field.max_length}
    return _or_null(shape) if field.null else shape


def of(model: type[models.Model], **more: Shape) -> Shape:
    """Return the JSON Schema of a row of `model`: exported columns and `more`."""
    columns = {name: _column(model._meta.get_field(name)) for name in COLUMNS[model]}
    return _object(**columns, **more)


def row(item: Any, **more: Any) -> dict[str, Any]:
    """Return the exported columns of a row, and `more`."""
    return {**{name: getattr(item, name) for name in COLUMNS[type(item)]}, **more}


_NAME: Final[Shape] = {"type": "string", "minLength": 1, "maxLength": 200}
_PERSON: Final = _or_null({"type": "string", "maxLength": 64})
_BODY: Final[Shape] = {
    "anyOf": [
        _object(text=_TEXT, salt=_HEX),
        _object(text=_TEXT, replaced=_list(_TEXT)),  # with pseudonyms for user names
        _object(
            erased=_object(
                reason={"type": "string", "minLength": 1, "maxLength": 200}, erased_at_us=_COUNT
            )
        ),
        {"type": "null"},
    ]
}
_ENTRY: Final = _object(
    position={"type": "integer", "minimum": 1, "maximum": 2**63 - 1},
    source={"type": "string", "minLength": 1, "maxLength": 160},
    claimed_source={"type": "string", "maxLength": 160},
    id={"type": "string", "minLength": 1, "maxLength": 64},
    kind={"type": "string", "pattern": r"^[a-z_]+\.[a-z_]+$", "maxLength": 64},
    lane={"enum": ["command", "evidence", "claim", "system"]},
    of_session=_FLAG,  # false: not an entry of the session, such as the grant of an exemption
    effect=_or_null(_ID),
    attempt=_or_null({"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}),
    subject=_or_null(_ID),
    actor={"type": "string", "minLength": 1, "maxLength": 64},
    lease_epoch=_or_null({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}),
    producer_seq=_or_null(_COUNT),
    occurred_us=_or_null({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}),
    received_us=_COUNT,
    facts=_ANY,
    commitment=_or_null(_HEX),
    body=_BODY,
)
_LINK: Final = _or_null(_object(key=_TEXT, handle=_TEXT))


_DESCRIPTIONS: Final = {
    "version": "format version; a reader rejects versions newer than its own",
    "origin": "where the bundle comes from: project, and the session's id and handle",
    "cut": "the last exported entry: its position and server time at the origin",
    "left_out": "data that the bundle does not contain, and why",
    "links": "other sessions that this one names; they are not in the bundle",
    "owner": "a pseudonym, as every person in the bundle",
    "effects": "one external action each, with its attempts and its row of the verdict table at the"
    " cut",
    "gates": "approval requests with their votes; the reasons are in the entries at the votes'"
    " positions",
    "stops": "in force at the cut",
    "leases": "as of the export; heartbeats make no entries",
    "artifacts": "by content hash; the bytes of enclosed artifacts are in artifacts/",
    "resume": "whether the session could resume, as of the cut",
    "entries": "journal entries in order. SHA-256 over salt and text of a body is its commitment;"
    " times that end in _us are microseconds since 1970, UTC",
}


def schema() -> Shape:
    """Build the JSON Schema of `bundle.json`, included in every bundle and published in docs/."""
    parts = _object(
        format={"const": FORMAT},
        version={"const": VERSION},
        origin=_object(project=_ID, project_name=_NAME, session=_ID, handle=_TEXT),
        cut=_object(position=_COUNT, at_us=_COUNT),
        left_out=_list(_object(what=_TEXT, why=_TEXT)),
        links=_object(parent=_LINK, branched_from=_LINK, merge_into=_LINK, merged_into=_LINK),
        session=of(Session, agent=_NAME, repository=_or_null(_NAME)),
        owner=_PERSON,
        on_behalf_of=_PERSON,
        agents=_list(_object(name=_NAME, charter=_TEXT, charter_version=_COUNT)),
        tools=_list(of(Tool)),
        tasks=_list(of(Task, id=_ID, parent=_or_null(_ID))),
        items=_list(of(Item, task=_ID)),
        effects=_list(
            of(
                Effect,
                id=_ID,
                agent=_NAME,
                task=_or_null(_ID),
                repository=_or_null(_NAME),
                parent_effect=_or_null(_ID),
                compensates=_or_null(_ID),
                attempts=_list(of(Attempt)),
                verdict=_object(row=_TEXT, answer=_TEXT, reason=_TEXT),
            )
        ),
        gates=_list(
            of(
                Gate,
                id=_ID,
                effect=_ID,
                agent=_NAME,
                policy_set=_or_null(_TEXT),
                requester=_PERSON,
                session_owner=_PERSON,
                agent_owner=_PERSON,
                votes=_list(of(Vote)),
            )
        ),
        exemptions=_list(of(Exemption, id=_ID, granted_by=_PERSON)),
        stops=_list(of(Hold, set_by=_PERSON)),
        leases=_list(of(Lease, task=_or_null(_ID), agent=_NAME)),
        decisions=_list(of(Decision, id=_ID, effect=_or_null(_ID))),
        handoffs=_list(
            of(Handoff, id=_ID, written_by=_or_null(_NAME), accepted_by=_or_null(_NAME))
        ),
        checkpoints=_list(of(Checkpoint, id=_ID)),
        facts=_list(of(ObservedFact)),
        artifacts=_list(of(Artifact, id=_ID, effect=_or_null(_ID), enclosed=_FLAG)),
        resume=_object(safe=_FLAG, sentence=_TEXT, open=_COUNT),
        entries=_list(_ENTRY),
    )
    for name, description in _DESCRIPTIONS.items():
        parts["properties"][name] = {"description": description, **parts["properties"][name]}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A session of Gatebook, as a bundle",
    }
    return {**head, **parts}
