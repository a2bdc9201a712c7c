"""Spans of real instrumentation, as it was captured, are read as tool calls."""

import json
from typing import Any

import pytest

from ledger.models import Effect
from sessions.models import Session
from tests.traces.conftest import Exporter
from tests.traces.otlp_requests import TRACE, tool_span
from traces.spans import Span, SpanSource
from traces.tool_calls import ToolCall, read_conversation, read_tool_call


def make_span(name: str, attributes: dict[str, Any], *, status: int = 0, **fields: Any) -> Span:
    source = SpanSource(fields.pop("resource", {}), "scope", "1")
    values: dict[str, Any] = {
        "parent": "",
        "kind": 1,
        "start_us": 1,
        "end_us": 2,
        "status_message": "",
    }
    values |= {"exceptions": (), **fields}
    return Span(
        trace=TRACE,
        id=f"{1:016x}",
        name=name,
        status=status,
        attributes=attributes,
        source=source,
        **values,
    )


def read_call(name: str, attributes: dict[str, Any], **fields: Any) -> ToolCall:
    call = read_tool_call(make_span(name, attributes, **fields))
    assert call is not None
    return call


LANGCHAIN_RESULT = {
    "type": "tool",
    "data": {
        "content": "appended beta",
        "name": "append_line",
        "tool_call_id": "call_b",
        "status": "success",
    },
}


@pytest.mark.parametrize(
    ("name", "attributes", "status", "expected"),
    [
        pytest.param(
            "execute_tool append_line",
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "append_line",
                "gen_ai.tool.call.id": "call_a",
                "gen_ai.tool.call.arguments": '{"text":"alpha"}',
                "gen_ai.agent.name": "agent",
                "gen_ai.conversation.id": "01a1f857",
                "logfire.msg": "running tool: append_line",
                "gen_ai.tool.call.result": "appended alpha",
            },
            0,
            ("append_line", "call_a", {"text": "alpha"}, "appended alpha", "ok"),
            id="pydantic_ai",
        ),
        pytest.param(
            "append_line",
            {
                "tool.name": "append_line",
                "input.value": '{"text": "alpha"}',
                "input.mime_type": "application/json",
                "output.value": "appended alpha",
                "openinference.span.kind": "TOOL",
            },
            1,
            ("append_line", "", {"text": "alpha"}, "appended alpha", "ok"),
            id="openai_agents",
        ),
        pytest.param(  # it waits for a person: the span ends, and is OK
            "push_branch",
            {
                "tool.name": "push_branch",
                "input.value": '{"branch": "agent/oai"}',
                "input.mime_type": "application/json",
                "openinference.span.kind": "TOOL",
            },
            1,
            ("push_branch", "", {"branch": "agent/oai"}, None, "unknown"),
            id="openai_agents_interrupted",
        ),
        pytest.param(
            "append_line",
            {
                "input.value": "beta",
                "output.value": json.dumps(LANGCHAIN_RESULT),
                "output.mime_type": "application/json",
                "tool.name": "append_line",
                "session.id": "otl-8428",
                "openinference.span.kind": "TOOL",
            },
            1,
            ("append_line", "call_b", "beta", LANGCHAIN_RESULT, "ok"),
            id="langchain",
        ),
        pytest.param(
            "claude_code.tool.execution",
            {
                "session.id": "398693b3",
                "span.type": "tool.execution",
                "tool_use_id": "toolu_lab_01",
                "gen_ai.tool.call.id": "toolu_lab_01",
                "duration_ms": 74,
                "success": True,
            },
            0,
            ("", "toolu_lab_01", {}, None, "ok"),
            id="claude_code_execution",
        ),
        pytest.param(
            "claude_code.tool",
            {
                "session.id": "398693b3",
                "span.type": "tool",
                "tool_name": "Bash",
                "full_command": "git push -q origin HEAD",
                "gen_ai.tool.call.id": "toolu_lab_03",
            },
            0,
            ("Bash", "toolu_lab_03", {"command": "git push -q origin HEAD"}, None, ""),
            id="claude_code",
        ),
        pytest.param(
            "tool.ByeTool",
            {
                "gen_ai.tool.name": "ByeTool",
                "gen_ai.tool.call.id": "call_dOeEHJDI0",
                "input.value": '{"name":"Bob"}',
                "output.value": "Bye my dear Bob!",
            },
            0,
            ("ByeTool", "call_dOeEHJDI0", {"name": "Bob"}, "Bye my dear Bob!", "ok"),
            id="koog",
        ),
        pytest.param(
            "Web-Search",
            {
                "langfuse.observation.type": "tool",
                "langfuse.observation.input": '{"query":"example"}',
                "langfuse.observation.output": '["https://example.com"]',
            },
            0,
            ("Web-Search", "", {"query": "example"}, ["https://example.com"], "ok"),
            id="langfuse",
        ),
        pytest.param(
            "ai.toolCall",
            {
                "ai.operationId": "ai.toolCall",
                "ai.toolCall.name": "getWeather",
                "ai.toolCall.id": "call_1",
                "ai.toolCall.args": '{"city":"Rome"}',
                "ai.toolCall.result": '{"sun":true}',
            },
            0,
            ("getWeather", "call_1", {"city": "Rome"}, {"sun": True}, "ok"),
            id="vercel_ai",
        ),
        pytest.param(
            "search.tool",
            {
                "traceloop.span.kind": "tool",
                "traceloop.entity.name": "search",
                "traceloop.entity.input": '{"inputs":{"q":1}}',
                "traceloop.entity.output": "none",
            },
            0,
            ("search", "", {"inputs": {"q": 1}}, "none", "ok"),
            id="openllmetry",
        ),
    ],
)
def test_a_span_of_each_convention_is_a_tool_call(
    name: str, attributes: dict[str, Any], status: int, expected: tuple[Any, ...]
) -> None:
    call = read_call(name, attributes, status=status)
    assert (call.tool, call.call_id, call.arguments, call.result, call.outcome) == expected
    assert not call.failed


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "chat", "gen_ai.tool.name": "x"},
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c"},
        {"openinference.span.kind": "CHAIN", "input.value": "[]"},
        {"span.type": "tool.blocked_on_user", "session.id": "s"},
        {"langfuse.observation.type": "generation"},
        {"http.request.method": "POST"},
        {},
    ],
)
def test_a_span_of_anything_else_is_no_tool_call(attributes: dict[str, Any]) -> None:
    assert read_tool_call(make_span("x", attributes)) is None


def test_an_error_of_a_tool_is_its_outcome_and_an_exception_leaves_it_unknown() -> None:
    refused = LANGCHAIN_RESULT | {"data": {**LANGCHAIN_RESULT["data"], "status": "error"}}  # type: ignore[dict-item]
    base = {"openinference.span.kind": "TOOL", "tool.name": "t", "input.value": "x"}
    call = read_call("t", base | {"output.value": json.dumps(refused)})
    assert (call.outcome, call.failed) == ("error", False)
    call = read_call("t", base, status=2)
    assert (call.outcome, call.failed) == ("unknown", True)
    call = read_call(
        "claude_code.tool.execution", {"span.type": "tool.execution", "success": False}
    )
    assert (call.outcome, call.failed) == ("unknown", True)


def test_arguments_that_are_no_json_stay_text() -> None:
    base = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"}
    for text in ("{'city': 'Rome'}", '{"a":', "[" * 40 + "]" * 40, '{"a":"\\ud800"}', "12"):
        call = read_call("t", base | {"gen_ai.tool.call.arguments": text})
        assert call.arguments == text


def test_the_conversation_is_that_of_the_span_then_of_the_resource() -> None:
    resource = {"session.id": "of-the-process"}
    assert read_conversation(make_span("x", {}, resource=resource)) == "of-the-process"
    attributes = {"session.id": "s", "gen_ai.conversation.id": "c"}
    assert read_conversation(make_span("x", attributes, resource=resource)) == "c"
    assert read_conversation(make_span("x", {})) == ""


def claude_spans(number: int, *, executed: bool = True) -> list[dict[str, Any]]:
    shared = {"session.id": "398693b3", "gen_ai.tool.call.id": f"toolu_{number}"}
    described = shared | {"span.type": "tool", "tool_name": "Bash", "full_command": "ls"}
    ran = shared | {"span.type": "tool.execution", "success": True}
    spans = [tool_span(2 * number, name="claude_code.tool") | {"attributes": described}]
    if executed:
        spans += [
            tool_span(2 * number + 1, name="claude_code.tool.execution") | {"attributes": ran}
        ]
    return spans


@pytest.mark.parametrize("turned", [False, True])
def test_two_spans_of_claude_code_are_one_effect(exporter: Exporter, turned: bool) -> None:
    for span in sorted(claude_spans(1), key=lambda span: span["id"], reverse=turned):
        exporter.export(span)
    effect = Effect.objects.get()
    assert (effect.tool, effect.call_id, effect.state) == ("Bash", "toolu_1", "acknowledged")
    assert (effect.outcome, effect.attempt_count) == ("ok", 1)
    assert Session.objects.get().key == "398693b3"


def test_a_call_that_claude_code_never_ran_is_not_shown_as_run(exporter: Exporter) -> None:
    exporter.export(*claude_spans(1, executed=False))
    effect = Effect.objects.get()
    assert (effect.state, effect.permission, effect.attempt_count) == ("planned", "none", 0)
