"""The OpenAPI 3.1 document, generated from the schemas that parse the requests."""

from functools import lru_cache
from typing import Any, Final

import msgspec
from django.conf import settings

from api import endpoint as api_endpoint
from api import idempotency, path_converters
from api.events import cloudevents
from api.events.parse import EVENT_SCHEMAS
from api.openapi import foreign_formats, leases, responses, resume, verdicts, working_state
from api.openapi.operation import Endpoint
from api.schemas import core
from api.schemas.messages import ReadMessage, ReportCapacity, SendMessage
from api.schemas.working_state import FinishTask
from approvals.gates.statuses import GATE_STATUSES
from investigation.query.parser.query_parser import MAX_CHARACTERS
from ledger.states import REPORTED_OUTCOMES, STATES
from sessions import capacity, checkpoints
from sessions.messages import INBOXES
from sessions.models import ITEM_STATES, STATUSES

ENDPOINTS: Final = (
    Endpoint(
        "post",
        "/sessions",
        "openSession",
        "Open a session, or return the session that has this key.",
        {201: "SessionBrief", 200: "SessionBrief"},
        core.OpenSession,
        tag="sessions",
    ),
    Endpoint(
        "get",
        "/sessions",
        "listSessions",
        "List sessions, newest first.",
        {200: "Page"},
        query=("status", "key", "limit", "after"),
        tag="sessions",
    ),
    Endpoint(
        "get",
        "/sessions/{session}",
        "getSession",
        "Return one session with its lease.",
        {200: "Session"},
        tag="sessions",
    ),
    Endpoint(
        "post",
        "/sessions/{session}/end",
        "endSession",
        "End a session. Only the first end counts.",
        {200: "SessionBrief"},
        core.EndSession,
        tag="sessions",
        if_match=True,
    ),
    Endpoint(
        "post",
        "/sessions/{session}/tasks",
        "createTask",
        "Create a task, or return the task that has this key.",
        {201: "TaskBrief", 200: "TaskBrief"},
        core.CreateTask,
        tag="tasks",
    ),
    Endpoint(
        "get",
        "/sessions/{session}/tasks",
        "listTasks",
        "List the tasks of a session, newest first.",
        {200: "Page"},
        query=("limit", "after"),
        tag="tasks",
    ),
    Endpoint(
        "post",
        "/tasks/{task}/change",
        "changeTask",
        "Change a task. Omitted fields keep their values.",
        {200: "TaskBrief"},
        core.ChangeTask,
        tag="tasks",
        if_match=True,
    ),
    Endpoint(
        "post",
        "/tasks/{task}/done",
        "finishTask",
        "Mark a task as done.",
        {200: "TaskBrief"},
        FinishTask,
        tag="tasks",
        if_match=True,
    ),
    Endpoint(
        "post",
        "/tasks/{task}/items",
        "putItems",
        "Set the state of items: pending, done or failed.",
        {200: "Progress"},
        core.PutItems,
        tag="tasks",
        if_match=True,
    ),
    Endpoint(
        "get",
        "/tasks/{task}/items",
        "listItems",
        "List the first 10,000 items of a task by key, with counts of all items.",
        {200: "Items"},
        query=("state",),
        tag="tasks",
    ),
    *working_state.ENDPOINTS,
    *verdicts.ENDPOINTS,
    *resume.ENDPOINTS,
    *leases.ENDPOINTS,
    Endpoint(
        "post",
        "/effects",
        "planEffect",
        "Plan an effect before it happens. The answer says whether to proceed.",
        {201: "Effect", 200: "Effect"},
        core.PlanEffect,
    ),
    Endpoint(
        "get",
        "/effects",
        "listEffects",
        "List effects, newest first. Filters match exactly; `effect_key` and `call_id` require"
        " `session`.",
        {200: "Page"},
        query=(
            "state",
            "tool",
            "session",
            "effect_key",
            "call_id",
            "external_reference",
            "outcome",
            "limit",
            "after",
        ),
    ),
    Endpoint(
        "get",
        "/effects/{effect}",
        "getEffect",
        "Return one effect with its attempts.",
        {200: "Effect"},
    ),
    Endpoint(
        "get",
        "/effects/{effect}/plan",
        "getPlan",
        "Return the recorded plan of an effect, if your agent planned it.",
        {200: "PlanBody"},
    ),
    Endpoint(
        "get",
        "/effects/{effect}/result",
        "getResult",
        "Return the stored outcome of an effect, if your agent planned it.",
        {200: "StoredResult"},
    ),
    Endpoint(
        "post",
        "/effects/{effect}/dispatch",
        "dispatchEffect",
        "Use the permission. Act only after a 200 response.",
        {200: "Effect"},
        core.DispatchEffect,
    ),
    Endpoint(
        "post",
        "/effects/{effect}/acknowledge",
        "acknowledgeEffect",
        "Record the outcome of an attempt.",
        {200: "Effect", 202: "Effect"},
        core.AcknowledgeEffect,
    ),
    Endpoint(
        "post",
        "/effects/{effect}/fail",
        "failEffect",
        "Record that an attempt failed.",
        {200: "Effect", 202: "Effect"},
        core.FailEffect,
    ),
    Endpoint(
        "post",
        "/effects/{effect}/compensate",
        "compensateEffect",
        "Plan the compensation of an effect.",
        {201: "Effect", 200: "Effect"},
        core.CompensateEffect,
    ),
    Endpoint(
        "post",
        "/effects/{effect}/supersede",
        "supersedeEffect",
        "Withdraw an effect that has not happened.",
        {200: "Effect"},
        core.SupersedeEffect,
    ),
    Endpoint(
        "get",
        "/gates",
        "listGates",
        "List gates, newest first.",
        {200: "Page"},
        query=("session", "effect", "status", "limit", "after"),
        tag="gates",
    ),
    Endpoint(
        "get",
        "/gates/{gate}",
        "getGate",
        "Return one gate. With `wait`, the response waits for a ruling or a change.",
        {200: "Gate"},
        query=("wait", "since"),
        tag="gates",
    ),
    Endpoint(
        "post",
        "/gates/wait",
        "waitForGates",
        "Wait until at least one of several gates changes. Changes nothing.",
        {200: "Gates"},
        core.WaitForGates,
        tag="gates",
    ),
    Endpoint(
        "post",
        "/gates/{gate}/cancel",
        "cancelGate",
        "Withdraw an approval request. A gate that has ended does not change.",
        {200: "Gate"},
        core.CancelGate,
        tag="gates",
    ),
    Endpoint(
        "post",
        "/artifacts",
        "recordArtifact",
        "Record an artifact by its hash.",
        {201: "ArtifactBrief"},
        core.RecordArtifact,
        tag="artifacts",
    ),
    Endpoint(
        "get",
        "/artifacts/{artifact}",
        "getArtifact",
        "Return the description of one artifact.",
        {200: "ArtifactBrief"},
        tag="artifacts",
    ),
    Endpoint(
        "put",
        "/artifacts/{artifact}/bytes",
        "putBytes",
        "Store the bytes of an artifact.",
        {200: "ArtifactBrief"},
        tag="artifacts",
    ),
    Endpoint(
        "get",
        "/artifacts/{artifact}/bytes",
        "getBytes",
        "Return the stored bytes of an artifact.",
        {200: "bytes"},
        tag="artifacts",
    ),
    Endpoint(
        "post",
        "/messages",
        "sendMessage",
        "Send a message to an agent by name, or to `shared` for all agents.",
        {201: "MessageBrief"},
        SendMessage,
        tag="messages",
    ),
    Endpoint(
        "get",
        "/messages",
        "listMessages",
        "List messages in your own inbox and the shared inbox, oldest first.",
        {200: "Page"},
        query=("unread", "box", "session", "limit", "after"),
        tag="messages",
    ),
    Endpoint(
        "get",
        "/messages/{message}",
        "getMessage",
        "Return one message from your own inbox or the shared inbox.",
        {200: "Message"},
        tag="messages",
    ),
    Endpoint(
        "post",
        "/messages/{message}/read",
        "readMessage",
        "Mark a message as read.",
        {200: "MessageBrief"},
        ReadMessage,
        tag="messages",
    ),
    Endpoint(
        "post",
        "/capacity",
        "reportCapacity",
        "Report your remaining capacity: context tokens, time, queue.",
        {200: "Capacity"},
        ReportCapacity,
        tag="capacity",
    ),
    Endpoint(
        "get",
        "/capacity",
        "listCapacity",
        "List the latest capacity report of each agent and session, newest first.",
        {200: "Page"},
        query=("session", "agent", "limit"),
        tag="capacity",
    ),
    Endpoint(
        "get",
        "/search",
        "search",
        "Run a search query. Returns rows of the queried entity, or groups.",
        {200: "Found"},
        query=("q", "before", "after", "limit"),
        tag="search",
    ),
    Endpoint(
        "post",
        "/events",
        "postEvents",
        "Record a batch of facts after the event.",
        {200: "BatchAnswer", 207: "BatchAnswer"},
        query=("atomic", "evaluate_policies"),
        tag="evidence",
    ),
    Endpoint(
        "post",
        "/cloudevents",
        "postCloudEvents",
        "Record a CloudEvent, or all CloudEvents of a batch.",
        {200: "BatchAnswer"},
        tag="evidence",
    ),
    Endpoint(
        "get",
        "/events/receipt",
        "receipt",
        "Return the journal position of a recorded fact.",
        {200: "Receipt"},
        query=("id", "source"),
        tag="evidence",
    ),
    Endpoint(
        "get",
        "/tools",
        "getTool",
        "Return the declaration of a tool.",
        {200: "Tool"},
        query=("name",),
        tag="about",
    ),
    Endpoint(
        "get",
        "/limits",
        "limits",
        "Return the limits of this installation.",
        {200: "Limits"},
        tag="about",
    ),
)

ERROR_DESCRIPTIONS: Final = {
    400: "The request is malformed, or its Idempotency-Key is missing or invalid.",
    401: "The token is missing, unknown, expired or revoked.",
    403: "The token is read-only, or the session belongs to another agent.",
    404: "The token's project has no such object.",
    405: "The URL does not support this method. See the Allow header.",
    409: "The current state does not allow this command. Read the object and decide again.",
    411: "Content-Length is missing.",
    413: "The body exceeds a limit. `detail` names the limit.",
    415: "The media type, encoding or charset is not supported.",
    422: "The request is well-formed but invalid. `pointer` names the field.",
    429: "The agent, the tool or the search is throttled. Retry after Retry-After seconds.",
    503: "Temporarily unavailable. Retry with the same Idempotency-Key.",
}

# At least one of these fields is required, which a msgspec struct cannot express.
_AT_LEAST_ONE: Final[dict[str, dict[str, Any]]] = {
    "PlanEffect": {"effect_key": {"type": "string"}, "call_id": {"type": "string", "minLength": 1}},
    "CompensateEffect": {
        "effect_key": {"type": "string"},
        "call_id": {"type": "string", "minLength": 1},
    },
    "ReportedPlan": {
        "effect_key": {"type": "string"},
        "call_id": {"type": "string", "minLength": 1},
    },
    "ReportCapacity": {name: {"type": "integer"} for name in capacity.CAPACITY_FIELDS},
    "DispatchEffect": {"arguments": {}, "intent_digest": {"type": "string"}},
}
_EXACTLY_ONE: Final = {"AcquireLease": ("session", "task", "resource")}
_ENUMS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("listSessions", "status"): STATUSES,
    ("listEffects", "state"): STATES,
    ("listEffects", "outcome"): REPORTED_OUTCOMES,
    ("listGates", "status"): GATE_STATUSES,
    ("listItems", "state"): ITEM_STATES,
    **working_state.WORK_ENUMS,
    **leases.LEASE_ENUMS,
    ("listMessages", "unread"): ("0", "1"),
    ("listMessages", "box"): INBOXES,
    ("postEvents", "atomic"): ("true", "false"),
    ("postEvents", "evaluate_policies"): ("true", "false"),
}
_ID: Final = {"type": "string", "format": "uuid"}


def get_api_limits() -> dict[str, int]:
    """Return the limits of the API by name."""
    return {
        "batch_items": api_endpoint.BATCH_ITEMS,
        "batch_bytes": api_endpoint.BATCH_BYTES,
        "item_bytes": api_endpoint.ITEM_BYTES,
        "checkpoint_bytes": checkpoints.MAX_CHECKPOINT_BYTES,
        "artifact_bytes": settings.GATEBOOK_ARTIFACT_BYTES,
        "depth": api_endpoint.MAX_JSON_DEPTH,
        "idempotency_key_characters": idempotency.KEY_CHARACTERS,
    }


@lru_cache(maxsize=1)
def build_openapi_document() -> dict[str, Any]:
    """Build the OpenAPI document."""
    read = [endpoint.shape for endpoint in ENDPOINTS if endpoint.shape is not None]
    _, schemas = msgspec.json.schema_components(
        [*read, core.Envelope, *set(EVENT_SCHEMAS.values())],
        ref_template="#/components/schemas/{name}",
    )
    for name, fields in _AT_LEAST_ONE.items():
        schemas[name]["anyOf"] = [
            {"required": [field], "properties": {field: field_schema}}
            for field, field_schema in fields.items()
        ]
    for name, names in _EXACTLY_ONE.items():
        schemas[name]["oneOf"] = [
            {"required": [field_name], "properties": {field_name: {"type": "string"}}}
            for field_name in names
        ]
    described = (*ENDPOINTS, *foreign_formats.FOREIGN_ENDPOINTS)
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method] = _build_operation(endpoint)
    for endpoint in foreign_formats.FOREIGN_ENDPOINTS:
        operation = foreign_formats.complete_operation(endpoint, _build_operation(endpoint))
        paths[endpoint.path] = {endpoint.method: operation}
    for path, servers in foreign_formats.PATH_SERVERS.items():
        paths[path]["servers"] = servers
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gatebook",
            "version": settings.GATEBOOK_VERSION,
            "description": "A journal of what agents do to the outside world, and approval of it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/api/v1"}],
        "security": [{"token": []}],
        "tags": [{"name": tag} for tag in dict.fromkeys(endpoint.tag for endpoint in described)],
        "paths": paths,
        "components": {
            "schemas": {
                **schemas,
                **responses.RESPONSE_SCHEMAS,
                **foreign_formats.FOREIGN_SCHEMAS,
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "gbk_<id>_<secret>"},
                **foreign_formats.FOREIGN_SECURITY,
            },
        },
    }


def _build_operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "parameters": _build_parameters(endpoint),
        "responses": {
            str(status): _build_response(schema) for status, schema in endpoint.answers.items()
        },
    }
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for status, sentence in ERROR_DESCRIPTIONS.items():
        operation["responses"][str(status)] = {"description": sentence, "content": problem}
    if endpoint.shape is not None:
        schema = {"$ref": f"#/components/schemas/{endpoint.shape.__name__}"}
        empty = not [field for field in msgspec.structs.fields(endpoint.shape) if field.required]
        operation["requestBody"] = {
            "required": not empty,
            "content": {"application/json": {"schema": schema}},
        }
    elif endpoint.name == "postEvents":
        item = {
            "allOf": [{"$ref": "#/components/schemas/Envelope"}],
            "description": "plus the fields of its kind",
        }
        content = {
            "application/json": {
                "schema": {"type": "array", "items": item, "maxItems": api_endpoint.BATCH_ITEMS}
            },
            "application/x-ndjson": {
                "schema": {"type": "string", "description": "one item per line"}
            },
        }
        operation["requestBody"] = {"required": True, "content": content}
    elif endpoint.name == "postCloudEvents":
        event = {"$ref": "#/components/schemas/CloudEvent"}
        content = {
            cloudevents.STRUCTURED: {"schema": event},
            cloudevents.BATCHED: {
                "schema": {"type": "array", "items": event, "maxItems": api_endpoint.BATCH_ITEMS}
            },
        }
        operation["requestBody"] = {"required": True, "content": content}
    elif endpoint.name == "putBytes":
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _build_response(schema: str) -> dict[str, Any]:
    if schema == "bytes":
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    else:
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": "Success.", "content": content}


def _build_path_schema(name: str) -> dict[str, Any]:
    """Return the schema of a path parameter: id, handle or session key."""
    if name not in path_converters.HANDLE_TYPES:
        return _ID
    return {"type": "string", "pattern": f"^({path_converters.url_pattern(name)})$"} | (
        {"minLength": 1, "maxLength": 200} if name == "session" else {}
    )


def _build_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    for part in endpoint.path.split("/"):
        if part.startswith("{"):
            parameters.append(
                {
                    "name": part[1:-1],
                    "in": "path",
                    "required": True,
                    "schema": _build_path_schema(part[1:-1]),
                }
            )
    for name in endpoint.query:
        schema: dict[str, Any] = {
            "type": "string",
            "minLength": 1,
            "maxLength": 300,
            "pattern": "^[^\\x00]+$",
        }
        if name in ("limit", "after"):
            schema = {
                "type": "integer",
                "minimum": 1,
                "maximum": 200 if name == "limit" else 2**63 - 1,
            }
        elif name == "before":
            schema = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
        elif name == "q":
            schema["maxLength"] = MAX_CHARACTERS
        elif name in ("wait", "since"):
            schema = {
                "type": "integer",
                "minimum": 0,
                "maximum": 55 if name == "wait" else 2**31 - 1,
            }
        elif name == "process":
            schema["maxLength"] = 64
        elif (endpoint.name, name) in _ENUMS:
            schema = {"type": "string", "enum": list(_ENUMS[endpoint.name, name])}
        required = (endpoint.name, name) in (
            ("receipt", "id"),
            ("search", "q"),
            ("getTool", "name"),
        )
        parameters.append({"name": name, "in": "query", "required": required, "schema": schema})
    if endpoint.method == "post" and endpoint.name not in (
        "postEvents",
        "postCloudEvents",
        "waitForGates",
        "postBeats",
    ):
        schema = {
            "type": "string",
            "minLength": 1,
            "maxLength": idempotency.KEY_CHARACTERS,
            "pattern": "^[!-~]+$",
        }
        parameters.append(
            {"name": "Idempotency-Key", "in": "header", "required": True, "schema": schema}
        )
    if endpoint.if_match:
        schema = {"type": "string", "pattern": '^("[0-9]{1,10}"|[0-9]{1,10}|[*])$'}
        parameters.append({"name": "If-Match", "in": "header", "required": False, "schema": schema})
    return parameters
