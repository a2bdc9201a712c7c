"""Tool calls in spans: the conventions that name them, read into a single form. Pure.

Conventions: OpenTelemetry GenAI (`gen_ai.*`, also MCP), OpenInference, Claude Code, Langfuse,
Vercel AI SDK and OpenLLMetry. Each is a table of attribute names; what differs more is a function.
docs/reference/opentelemetry.md lists what counts.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from api.strictjson.parser import measure_depth
from traces.spans import STATUS_ERROR, Attributes, Span

MAX_CONTENT_DEPTH: Final = 24  # levels of arguments and results; deeper ones stay text
MAX_CALL_ID: Final = 200  # characters; longer ids are kept in the span only


class ToolCall(NamedTuple):
    """What a span says about one tool call.

    `outcome` is ok, error or unknown; empty if the span describes a call that another span ran.
    `failed` is True where the call ended with an error, so that its effect is unknown.
    """

    span: Span
    convention: str
    tool: str
    call_id: str
    arguments: Any
    has_arguments: bool
    result: Any
    has_result: bool
    outcome: str
    failed: bool
    used: frozenset[str]  # the attributes that became tool, arguments and result


class Convention(NamedTuple):
    """Attribute names of a convention; the first of each that the span has counts."""

    name: str
    is_tool: Callable[[Span], bool]
    tool: tuple[str, ...]
    call_id: tuple[str, ...]
    arguments: tuple[str, ...]
    result: tuple[str, ...]


def _is_gen_ai_tool(span: Span) -> bool:
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name")
    if operation == "execute_tool":
        return True
    if operation is not None:
        return False
    # Some frameworks name the tool and leave the operation out.
    return "gen_ai.tool.name" in attributes and _is_not_framework_span(attributes)


def _is_not_framework_span(attributes: Attributes) -> bool:
    return "openinference.span.kind" not in attributes and "span.type" not in attributes


CONVENTIONS: Final = (
    Convention(
        "claude_code",
        lambda span: (
            span.attributes.get("span.type") in ("tool", "tool.execution")
            and span.name.startswith("claude_code.")
        ),
        ("tool_name", "gen_ai.tool.name"),
        ("gen_ai.tool.call.id", "tool_use_id"),
        ("tool_input", "gen_ai.tool.call.arguments"),
        ("tool_result", "gen_ai.tool.call.result"),
    ),
    Convention(
        "openinference",
        lambda span: span.attributes.get("openinference.span.kind") == "TOOL",
        ("tool.name", "gen_ai.tool.name"),
        ("tool_call.id", "tool.id", "gen_ai.tool.call.id"),
        ("input.value", "gen_ai.tool.call.arguments"),
        ("output.value", "gen_ai.tool.call.result"),
    ),
    Convention(
        "gen_ai",
        _is_gen_ai_tool,
        ("gen_ai.tool.name",),
        ("gen_ai.tool.call.id",),
        ("gen_ai.tool.call.arguments", "tool_arguments", "input.value"),
        ("gen_ai.tool.call.result", "tool_response", "output.value"),
    ),
    Convention(
        "langfuse",
        lambda span: span.attributes.get("langfuse.observation.type") == "tool",
        ("gen_ai.tool.name",),
        ("gen_ai.tool.call.id",),
        ("langfuse.observation.input",),
        ("langfuse.observation.output",),
    ),
    Convention(
        "vercel_ai",
        lambda span: span.attributes.get("ai.operationId") == "ai.toolCall",
        ("ai.toolCall.name",),
        ("ai.toolCall.id",),
        ("ai.toolCall.args", "ai.toolCall.input"),
        ("ai.toolCall.result", "ai.toolCall.output"),
    ),
    Convention(
        "openllmetry",
        lambda span: span.attributes.get("traceloop.span.kind") == "tool",
        ("traceloop.entity.name",),
        ("gen_ai.tool.call.id",),
        ("traceloop.entity.input",),
        ("traceloop.entity.output",),
    ),
)

# Where a span names its conversation; the first that is set counts. Then those of its resource.
_CONVERSATIONS: Final = (
    "gatebook.session",
    "gen_ai.conversation.id",
    "session.id",
    "langfuse.session.id",
    "traceloop.association.properties.session_id",
    "ai.telemetry.metadata.sessionId",
)


def read_conversation(span: Span) -> str:
    """Return the conversation that a span or its resource names; empty if none."""
    for attributes in (span.attributes, span.source.resource):
        for name in _CONVERSATIONS:
            value = attributes.get(name)
            if value:
                return str(value)
    return ""


def read_tool_call(span: Span) -> ToolCall | None:
    """Return the tool call of a span; None for a span of anything else."""
    for convention in CONVENTIONS:
        if convention.is_tool(span):
            return _read_call(span, convention)
    return None


def _read_call(span: Span, convention: Convention) -> ToolCall:
    attributes = span.attributes
    arguments_name = _find_name(attributes, convention.arguments)
    result_name = _find_name(attributes, convention.result)
    arguments = _parse_content(attributes.get(arguments_name))
    result = _parse_content(attributes.get(result_name))
    call_id = str(_get_first(attributes, convention.call_id) or "")
    tool = str(_get_first(attributes, convention.tool) or "")
    message = _find_tool_message(result) if convention.name == "openinference" else None
    if message is not None:
        call_id = call_id or str(message.get("tool_call_id") or "")
    if convention.name == "claude_code" and not arguments_name:
        arguments, arguments_name = _read_claude_arguments(attributes), "claude_code"
    outcome, failed = _decide_outcome(
        span, has_arguments=bool(arguments_name), has_result=bool(result_name), message=message
    )
    is_description = convention.name == "claude_code" and attributes["span.type"] == "tool"
    return ToolCall(
        span,
        convention.name,
        tool or ("" if convention.name == "claude_code" else span.name),
        call_id if len(call_id) <= MAX_CALL_ID else "",
        arguments,
        bool(arguments_name),
        result,
        bool(result_name),
        "" if is_description else outcome,
        failed and not is_description,
        frozenset((arguments_name, result_name)),
    )


def _decide_outcome(
    span: Span, *, has_arguments: bool, has_result: bool, message: dict[str, Any] | None
) -> tuple[str, bool]:
    """Return the outcome, and whether the call ended with an error.

    A span that shows the arguments and no result may be of a call that was interrupted before it
    ran (a framework that waits for approval ends its span without an error): its outcome is
    unknown. Most instrumentation does not show either; then the status decides.
    """
    success = span.attributes.get("success")
    if (
        span.status == STATUS_ERROR
        or "error.type" in span.attributes
        or success in (False, "false")
    ):
        return "unknown", True
    if message is not None and message.get("status") == "error":
        return "error", False
    if has_result or success in (True, "true"):
        return "ok", False
    if has_arguments or span.exceptions or not span.end_us:
        return "unknown", False
    return "ok", False


def _find_tool_message(result: Any) -> dict[str, Any] | None:
    """Return the ToolMessage of LangChain in a result, which names the call that it answers."""
    if not isinstance(result, dict):
        return None
    inner = result.get("data") if result.get("type") == "tool" else result
    return inner if isinstance(inner, dict) and "tool_call_id" in inner else None


# Claude Code shows some arguments as attributes of their own.
_CLAUDE_ARGUMENTS: Final = {"full_command": "command", "file_path": "file_path"}


def _read_claude_arguments(attributes: Attributes) -> dict[str, Any]:
    return {
        argument: attributes[name]
        for name, argument in _CLAUDE_ARGUMENTS.items()
        if name in attributes
    }


def _find_name(attributes: Attributes, names: tuple[str, ...]) -> str:
    return next((name for name in names if attributes.get(name) is not None), "")


def _get_first(attributes: Attributes, names: tuple[str, ...]) -> Any:
    return attributes.get(_find_name(attributes, names))


def _parse_content(value: Any) -> Any:
    """Return an object or list that was sent as JSON text; any other value as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            content = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return value
        return content if measure_depth(content) <= MAX_CONTENT_DEPTH else value
    return value
