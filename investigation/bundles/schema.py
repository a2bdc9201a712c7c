"""Format of a session bundle: exported columns and the JSON Schema.

Columns are listed only here; their types are those of the tables. A new column of a table is
exported only if listed here. A change that an older reader would misread raises VERSION.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.db import models

from approvals.models import Exemption, Gate, Vote
from ledger.models import Attempt, Effect, Stop, Tool
from sessions.models import (
    Artifact,
    Checkpoint,
    Decision,
    Handoff,
    Item,
    Lease,
    ObservedFact,
    Session,
    Task,
)

FORMAT: Final = "gatebook.session"
VERSION: Final = 1
Shape = dict[str, Any]

# Columns exported unchanged. Ids and references have their own names, below.
EXPORTED_COLUMNS: Final[Mapping[type[models.Model], tuple[str, ...]]] = {
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
        "field_history",
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
        "field_history",
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
        "heartbeat_at_us",
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
        "telling",
        "fields",
        "raises",
        "shell",
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
        "policy_outcome",
        "policy_rule",
        "policy_tool_class",
        "policy_parts_digest",
        "policy_enforced",
        "permission",
        "permission_basis",
        "permission_ref",
        "permission_until_us",
        "saved_permission",
        "saved_permission_until_us",
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
        "confirmed_by",
        "confirmed_mark",
    ),
    Attempt: (
        "number",
        "remote_key",
        "replaces",
        "verdict_row",
        "process",
        "lease_epoch",
        "lane",
        "permission",
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
        "valid_for_s",
        "decided_at_us",
        "permission_until_us",
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
    Stop: ("scope", "set_at_us"),
}
# Columns that are journal positions; an import maps each to the new journal.
POSITION_COLUMNS: Final = frozenset(
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
UNMAPPED_PARTS: Final = (
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


def _nullable(shape: Shape) -> Shape:
    return {"anyOf": [shape, {"type": "null"}]}


def _array(shape: Shape) -> Shape:
    return {"type": "array", "items": shape}


def _object(**properties: Shape) -> Shape:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


def _column_schema(field: Any) -> Shape:
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
    return _nullable(shape) if field.null else shape


def row_schema(model: type[models.Model], **more: Shape) -> Shape:
    """Return the JSON Schema of a row of `model`: exported columns and `more`."""
    columns = {
        name: _column_schema(model._meta.get_field(name)) for name in EXPORTED_COLUMNS[model]
    }
    return _object(**(columns | more))


def exported_columns(item: Any, **more: Any) -> dict[str, Any]:
    """Return the exported columns of a row, and `more`."""
    return {**{name: getattr(item, name) for name in EXPORTED_COLUMNS[type(item)]}, **more}


_NAME: Final[Shape] = {"type": "string", "minLength": 1, "maxLength": 200}
_PATH: Final[Shape] = {"type": "string", "minLength": 1, "maxLength": 200}
_PERSON: Final = _nullable({"type": "string", "maxLength": 64})
_BODY: Final[Shape] = {
    "anyOf": [
        _object(text=_TEXT, salt=_HEX),
        _object(text=_TEXT, replaced=_array(_TEXT)),  # with pseudonyms for user names
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
    effect=_nullable(_ID),
    attempt=_nullable({"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}),
    subject=_nullable(_ID),
    actor={"type": "string", "minLength": 1, "maxLength": 64},
    lease_epoch=_nullable({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}),
    producer_seq=_nullable(_COUNT),
    occurred_us=_nullable({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}),
    received_us=_COUNT,
    facts=_ANY,
    commitment=_nullable(_HEX),
    body=_BODY,
)
_LINK: Final = _nullable(_object(key=_TEXT, handle=_TEXT))


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


def bundle_schema() -> Shape:
    """Build the JSON Schema of `bundle.json`, included in every bundle and published in docs/."""
    parts = _object(
        format={"const": FORMAT},
        version={"const": VERSION},
        origin=_object(project=_ID, project_name=_NAME, session=_ID, handle=_TEXT),
        cut=_object(position=_COUNT, at_us=_COUNT),
        left_out=_array(_object(what=_TEXT, why=_TEXT)),
        links=_object(parent=_LINK, branched_from=_LINK, merge_into=_LINK, merged_into=_LINK),
        session=row_schema(Session, agent=_NAME, repository=_nullable(_NAME)),
        owner=_PERSON,
        on_behalf_of=_PERSON,
        agents=_array(_object(name=_NAME, charter=_TEXT, charter_version=_COUNT)),
        tools=_array(
            row_schema(
                Tool, telling=_array(_PATH), fields=_ANY, raises=_array(_ANY), shell=_array(_ANY)
            )
        ),
        tasks=_array(row_schema(Task, id=_ID, parent=_nullable(_ID))),
        items=_array(row_schema(Item, task=_ID)),
        effects=_array(
            row_schema(
                Effect,
                id=_ID,
                agent=_NAME,
                task=_nullable(_ID),
                repository=_nullable(_NAME),
                parent_effect=_nullable(_ID),
                compensates=_nullable(_ID),
                attempts=_array(row_schema(Attempt)),
                verdict=_object(row=_TEXT, answer=_TEXT, reason=_TEXT),
            )
        ),
        gates=_array(
            row_schema(
                Gate,
                id=_ID,
                effect=_ID,
                agent=_NAME,
                policy_set=_nullable(_TEXT),
                requester=_PERSON,
                session_owner=_PERSON,
                agent_owner=_PERSON,
                votes=_array(row_schema(Vote)),
            )
        ),
        exemptions=_array(row_schema(Exemption, id=_ID, granted_by=_PERSON)),
        stops=_array(row_schema(Stop, set_by=_PERSON)),
        leases=_array(row_schema(Lease, task=_nullable(_ID), agent=_NAME)),
        decisions=_array(row_schema(Decision, id=_ID, effect=_nullable(_ID))),
        handoffs=_array(
            row_schema(Handoff, id=_ID, written_by=_nullable(_NAME), accepted_by=_nullable(_NAME))
        ),
        checkpoints=_array(row_schema(Checkpoint, id=_ID)),
        facts=_array(row_schema(ObservedFact)),
        artifacts=_array(row_schema(Artifact, id=_ID, effect=_nullable(_ID), enclosed=_FLAG)),
        resume=_object(safe=_FLAG, sentence=_TEXT, open=_COUNT),
        entries=_array(_ENTRY),
    )
    for name, description in _DESCRIPTIONS.items():
        parts["properties"][name] = {"description": description, **parts["properties"][name]}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A session of Gatebook, as a bundle",
    }
    return {**head, **parts}
