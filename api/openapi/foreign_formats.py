"""Operations that take what others define: hooks, webhooks of code hosts, OpenTelemetry spans.

Each has its own form of request, answer and error. The packages `hooks` and `traces`, above this
one, serve them; tests/api/test_foreign_formats.py compares both.
"""

from typing import Any, Final

from api.openapi.operation import Endpoint, build_object_schema

_TEXT: Final = {"type": "string"}
_OBJECT: Final = {"type": "object"}
_TOKEN: Final[list[dict[str, list[str]]]] = [{"token": []}]
_JSON: Final = "application/json"
_PROTOBUF: Final = "application/x-protobuf"
_AGENTS: Final = {
    "claude-code": ("ClaudeCode", "Claude Code", "HookAnswer"),
    "codex": ("Codex", "Codex", "HookAnswer"),
    "gemini": ("Gemini", "Gemini CLI", "GeminiHookAnswer"),
}
_CODE_HOSTS: Final = {"github": "GitHub", "gitlab": "GitLab"}
_EVENT_HEADERS: Final = {"github": "X-GitHub-Event", "gitlab": "X-Gitlab-Event"}

FOREIGN_ENDPOINTS: Final = (
    *(
        Endpoint(
            "post",
            f"/hooks/{agent}",
            f"answer{name}Hook",
            f"Take a hook of {label} as it is sent. The status is always 200; an error denies the"
            " call.",
            {200: answer},
            query=("permitted", "waiting"),
            tag="hooks",
        )
        for agent, (name, label, answer) in _AGENTS.items()
    ),
    *(
        Endpoint(
            "post",
            f"/hooks/{host}{part}",
            f"take{label}{name}",
            f"Record a delivery of a webhook of {label}{where}. It is signed and needs no token.",
            {200: "Delivery"},
            tag="webhooks",
        )
        for host, label in _CODE_HOSTS.items()
        for part, name, where in (
            ("/{source}", "Delivery", ""),
            ("", "DeliveryBySignature", ", found by its signature"),
        )
    ),
    Endpoint(
        "post",
        "/v1/traces",
        "exportTraces",
        "Record the tool spans of an OTLP ExportTraceServiceRequest as evidence. The path is not"
        " below `/api/v1`.",
        {200: "ExportTraceServiceResponse"},
        tag="evidence",
    ),
)
# Servers of paths that are not below /api/v1.
PATH_SERVERS: Final = {"/v1/traces": [{"url": "/"}]}

FOREIGN_SECURITY: Final = {
    "githubSignature": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Hub-Signature-256",
        "description": "`sha256=` and the HMAC-SHA256 of the body by the webhook's secret, in hex",
    },
    "gitlabSignature": {
        "type": "apiKey",
        "in": "header",
        "name": "webhook-signature",
        "description": "`v1,` and the HMAC-SHA256 of webhook-id, webhook-timestamp and body, joined"
        " by dots, in base64. It needs these two headers.",
    },
    "gitlabToken": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Gitlab-Token",
        "description": "the webhook's secret, for versions of GitLab without signing tokens",
    },
}

_SPAN: Final = build_object_schema(
    {
        "traceId": {"type": "string", "pattern": "^[0-9a-fA-F]{32}$"},
        "spanId": {"type": "string", "pattern": "^[0-9a-fA-F]{16}$"},
    },
    name=_TEXT,
    startTimeUnixNano={"type": "string", "pattern": "^[0-9]{1,19}$"},
    endTimeUnixNano={"type": "string", "pattern": "^[0-9]{1,19}$"},
    attributes={"type": "array", "items": _OBJECT},
)
_SCOPE_SPANS: Final = build_object_schema({"spans": {"type": "array", "items": _SPAN}})
_RESOURCE_SPANS: Final = build_object_schema(
    {"scopeSpans": {"type": "array", "items": _SCOPE_SPANS}}
)
_HOOK_OUTPUT: Final = build_object_schema({"hookEventName": _TEXT})
FOREIGN_SCHEMAS: Final[dict[str, Any]] = {
    "CodingAgentHook": build_object_schema(
        {"hook_event_name": {"type": "string", "pattern": "^[A-Za-z]{1,64}$"}},
        session_id=_TEXT,
        tool_name=_TEXT,
        tool_input=_OBJECT,
        tool_use_id=_TEXT,
        tool_response={},
        cwd=_TEXT,
        gatebook={"description": "what the command `gatebook hook` adds"},
    ),
    "HookAnswer": {
        **build_object_schema(
            {},
            hookSpecificOutput=_HOOK_OUTPUT
            | {
                "properties": {
                    "hookEventName": _TEXT,
                    "permissionDecision": {"enum": ["allow", "deny", "defer"]},
                    "permissionDecisionReason": _TEXT,
                    "updatedInput": _OBJECT,
                    "additionalContext": _TEXT,
                    "decision": _OBJECT,
                }
            },
            systemMessage=_TEXT,
        ),
        "additionalProperties": False,
    },
    "GeminiHookAnswer": {
        **build_object_schema(
            {},
            decision={"enum": ["allow", "deny"]},
            reason=_TEXT,
            hookSpecificOutput=_HOOK_OUTPUT,
            systemMessage=_TEXT,
        ),
        "additionalProperties": False,
    },
    "Delivery": build_object_schema(
        {
            "delivery": {"type": "string", "description": "the delivery's handle, such as d_12"},
            "position": {"type": "integer"},
            "event": _TEXT,
            "understood": {"type": "boolean"},
        }
    ),
    "ExportTraceServiceRequest": build_object_schema(
        {"resourceSpans": {"type": "array", "items": _RESOURCE_SPANS}}
    ),
    "ExportTraceServiceResponse": build_object_schema(
        {},
        partialSuccess=build_object_schema({}, rejectedSpans=_TEXT, errorMessage=_TEXT),
    ),
    "RpcStatus": build_object_schema({"code": {"type": "integer"}, "message": _TEXT}),
}

_WEBHOOK_ERRORS: Final = {
    400: "The request is malformed.",
    401: "The signature is missing or wrong. Nothing is stored.",
    403: "The webhook is disabled in Gatebook.",
    404: "Gatebook has no such webhook.",
    405: "The URL does not support this method. See the Allow header.",
    411: "Content-Length is missing.",
    413: "The body exceeds a limit. `detail` names the limit.",
    415: "The media type, encoding or charset is not supported.",
    422: "The delivery is well-formed but invalid.",
    503: "Temporarily unavailable. Deliver again; a delivery is recorded once.",
}
_TRACE_ERRORS: Final = {
    400: "The body cannot be read: damaged protobuf, JSON or gzip. Nothing is recorded.",
    401: "The token is missing, unknown, expired or revoked.",
    403: "The token is read-only.",
    405: "The URL does not support this method. See the Allow header.",
    411: "Content-Length is missing.",
    413: "The request has too many bytes, spans or values.",
    415: "The media type, encoding or charset is not supported.",
    503: "Temporarily unavailable. Send the same spans again; no span is recorded twice.",
}
_CALL_EXAMPLE: Final = {
    "session_id": "5f0c1f0e-run",
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "git push origin main"},
    "tool_use_id": "toolu_01",
    "cwd": "/work/shop",
}
_GEMINI_EXAMPLE: Final = {
    "session_id": "5f0c1f0e-run",
    "hook_event_name": "BeforeTool",
    "tool_name": "run_shell_command",
    "tool_input": {"command": "git push origin main"},
    "cwd": "/work/shop",
}
_SPANS_EXAMPLE: Final = {
    "resourceSpans": [
        {
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": "5b8efff798038103d269b633813fc60c",
                            "spanId": "eee19b7ec3c1b174",
                            "name": "execute_tool web_search",
                            "startTimeUnixNano": "1767225600000000000",
                            "endTimeUnixNano": "1767225601000000000",
                            "attributes": [
                                {
                                    "key": "gen_ai.tool.name",
                                    "value": {"stringValue": "web_search"},
                                }
                            ],
                        }
                    ]
                }
            ]
        }
    ]
}


def complete_operation(endpoint: Endpoint, operation: dict[str, Any]) -> dict[str, Any]:
    """Return `operation` with the request, the errors and the authentication of its format."""
    if endpoint.tag == "hooks":
        return operation | _describe_hook(endpoint)
    if endpoint.tag == "webhooks":
        return operation | _describe_webhook(endpoint, operation)
    return operation | _describe_export()


def _describe_hook(endpoint: Endpoint) -> dict[str, Any]:
    example = _GEMINI_EXAMPLE if endpoint.path.endswith("/gemini") else _CALL_EXAMPLE
    return {
        "parameters": [
            _build_choice("permitted", ("ask", "allow")),
            _build_choice("waiting", ("deny", "defer")),
        ],
        "requestBody": {
            "required": True,
            "content": {_JSON: {"schema": _refer("CodingAgentHook"), "example": example}},
        },
        "responses": {"200": _answer_json("The answer to the hook.", endpoint.answers[200])},
        "security": _TOKEN,
    }


def _describe_webhook(endpoint: Endpoint, operation: dict[str, Any]) -> dict[str, Any]:
    host = endpoint.path.split("/")[2]
    event = {
        "name": _EVENT_HEADERS[host],
        "in": "header",
        "required": True,
        "schema": {"type": "string", "pattern": "^[ -~]{1,64}$"},
    }
    ids = [part for part in operation["parameters"] if part["in"] == "path"]
    schemes = ("githubSignature",) if host == "github" else ("gitlabSignature", "gitlabToken")
    return {
        "parameters": [*ids, event],
        "requestBody": {"required": True, "content": {_JSON: {"schema": _OBJECT}}},
        "responses": {
            "200": _answer_json("The delivery is stored.", "Delivery"),
            **{
                str(status): {
                    "description": sentence,
                    "content": {"application/problem+json": {"schema": _refer("Problem")}},
                }
                for status, sentence in _WEBHOOK_ERRORS.items()
            },
        },
        "security": [{scheme: []} for scheme in schemes],
    }


def _describe_export() -> dict[str, Any]:
    binary = {"schema": {"type": "string", "format": "binary"}}
    body = {"schema": _refer("ExportTraceServiceRequest"), "example": _SPANS_EXAMPLE}
    success = {
        "description": "Every span is recorded or no tool call, except those in `partialSuccess`.",
        "headers": {
            "Gatebook-Spans": {
                "description": "counts: recorded, repeated, ignored, rejected",
                "schema": _TEXT,
            }
        },
        "content": {_JSON: {"schema": _refer("ExportTraceServiceResponse")}, _PROTOBUF: binary},
    }
    failures = {
        str(status): {
            "description": sentence,
            "content": {_JSON: {"schema": _refer("RpcStatus")}, _PROTOBUF: binary},
        }
        for status, sentence in _TRACE_ERRORS.items()
    }
    return {
        "parameters": [],
        "requestBody": {
            "description": "plain, or gzip with `Content-Encoding: gzip`",
            "required": True,
            "content": {_JSON: body, _PROTOBUF: binary},
        },
        "responses": {"200": success, **failures},
        "security": _TOKEN,
    }


def _build_choice(name: str, values: tuple[str, ...]) -> dict[str, Any]:
    schema = {"type": "string", "enum": list(values), "default": values[0]}
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _answer_json(description: str, schema: str) -> dict[str, Any]:
    return {"description": description, "content": {_JSON: {"schema": _refer(schema)}}}


def _refer(schema: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{schema}"}
