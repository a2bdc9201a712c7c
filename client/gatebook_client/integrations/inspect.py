"""Inspect AI: an approver that holds tool calls, and tools whose calls are effects.

    gated = GatebookTools(session, tools={"send_mail": GatedTool("mail.send")})
    tools = gated.wrap_tools([send_mail()])
    result = await execute_tools(messages, tools, approval=gated.approval_policies())
    gated.check_waiting()

A call that waits for people is rejected for that reason, and is in `gated.waiting`.
`docs/how-to/inspect.md` of Gatebook shows the whole program.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from typing import Any

from inspect_ai.approval import Approval, ApprovalPolicy, Approver, approver
from inspect_ai.model import ChatMessage
from inspect_ai.tool import Tool, ToolCall, ToolCallView, ToolDef, ToolError, ToolResult
from pydantic_core import to_jsonable_python

from gatebook_client.async_sessions import AsyncSession
from gatebook_client.effect_keys import canonical
from gatebook_client.errors import PermissionRefused
from gatebook_client.integrations.tool_calls import (
    Denied,
    GatedTool,
    Held,
    ToolCalls,
    describe_failure,
    read_error,
)
from gatebook_client.types import Result

__all__ = ["GatebookTools", "GatedTool"]
# The call that the approver has let through, in the task that then runs its tool.
_approved_call: ContextVar[ToolCall | None] = ContextVar("gatebook_approved_call", default=None)


class GatebookTools:
    """Performs the calls of tools as effects of a session, once each.

    The approver rejects a held call, and lists it in `waiting`, by call id, until it is decided.
    What another approver approves permits nothing, because Gatebook rules again when the tool is
    called. A refused call is rejected with the reviewer's words. `tools`, `ungated` and the waits
    as in `ToolCalls`.
    """

    def __init__(
        self,
        session: AsyncSession,
        *,
        tools: Mapping[str, GatedTool] | None = None,
        ungated: Collection[str] = (),
        wait_for_windows_s: float | None = None,
    ) -> None:
        self.calls = ToolCalls(
            session,
            tools or {},
            ungated,
            wait_for_windows_s=wait_for_windows_s,
            failures=(ToolError,),
            to_result=_to_result,
        )
        self.waiting: dict[str, Held] = {}
        self._wrapped: set[str] = set()

    def approval_policies(self) -> list[ApprovalPolicy]:
        """Return the approval of all calls, for what executes the tools, or for a task."""

        async def approve(
            message: str, call: ToolCall, view: ToolCallView, history: list[ChatMessage]
        ) -> Approval:
            del message, view, history  # people see the call in Gatebook
            return await self._approve(call)

        def create_approver() -> Approver:
            return approve

        return [ApprovalPolicy(approver(name="gatebook")(create_approver)(), "*")]

    def check_waiting(self) -> None:
        """Raise RuntimeError if calls wait for people, so that the sample is repeated later."""
        if self.waiting:
            raise RuntimeError(
                "\n".join(f"{held.message} {held.gate_url}" for held in self.waiting.values())
            )

    def wrap_tools(self, tools: Iterable[Tool | ToolDef]) -> list[Tool]:
        """Return gated copies of tools; a handoff to an agent is no effect, and stays as it is."""
        return [self._wrap_tool(tool) for tool in tools]

    def _wrap_tool(self, tool: Tool | ToolDef) -> Tool:
        definition = tool if isinstance(tool, ToolDef) else ToolDef(tool)
        inner, name = definition.tool, definition.name
        if not self.calls.is_gated(name) or hasattr(inner, "agent"):
            return tool.as_tool() if isinstance(tool, ToolDef) else tool
        self._wrapped.add(name)

        @wraps(inner)
        async def execute(*positional: Any, **named: Any) -> ToolResult:
            return await self._call_tool(name, inner, positional, named)

        return ToolDef(
            execute,
            name,
            definition.description,
            definition.parameters,
            definition.parallel,
            definition.viewer,
            definition.model_input,
            definition.max_output,
            definition.options,
        ).as_tool()

    async def _approve(self, call: ToolCall) -> Approval:
        """Approve a call that Gatebook permits as far as it is known now."""
        name = call.function
        if not self.calls.is_gated(name):
            return Approval(decision="approve", explanation=f"{name} is not gated.")
        if name not in self._wrapped:
            if name.startswith("transfer_to_"):
                return Approval(decision="approve", explanation="A handoff is no effect.")
            sentence = f"{name} was not executed: it is no tool of `wrap_tools`, nor in `ungated`."
            return Approval(decision="reject", explanation=sentence)
        self.waiting.pop(call.id, None)
        try:
            await self.calls.check_change_request(call.id)
            call_id = await self.calls.find_approved(name, call.arguments, call.id)
        except PermissionRefused as refusal:
            outcome = read_error(self.calls.describe_call(name, {})["tool"], refusal)
            return Approval(decision="reject", explanation=outcome.message)
        held = await self.calls.find_wait(name, call.arguments, call_id)
        if held is not None:
            self.waiting[call.id] = held
            facts = held.to_json()
            return Approval(decision="reject", explanation=held.next_step, metadata=facts)
        _approved_call.set(replace(call, id=call_id))
        return Approval(decision="approve", explanation="Gatebook rules when the tool is called.")

    async def _call_tool(
        self, name: str, inner: Any, positional: tuple[Any, ...], named: dict[str, Any]
    ) -> ToolResult:
        """Perform a call as an effect; the tool is called only with permission."""
        call = _approved_call.get()
        _approved_call.set(None)
        if call is None or call.function != name or positional:
            raise RuntimeError(
                f"{name} was not executed: pass `approval_policies()` to what executes the tools."
            )
        outcome = await self.calls.perform(
            name,
            _read_arguments(call, named),
            lambda: inner(**named),
            call_id=call.id,
            meta={"framework": "inspect"},
        )
        if isinstance(outcome, Held):
            self.waiting[call.id] = outcome
            raise ToolError(outcome.next_step)
        if isinstance(outcome, Denied):
            raise ToolError(outcome.message)
        if not outcome.again:
            value: ToolResult = outcome.value
            return value
        if outcome.failed:
            raise ToolError(describe_failure(outcome.stored_result))
        stored = outcome.stored_result
        return stored if isinstance(stored, str | int | float | bool) else json.dumps(stored)


def _read_arguments(call: ToolCall, named: dict[str, Any]) -> Any:
    """Return the arguments of a call as the model wrote them, if the tool gets the same."""
    received = to_jsonable_python(named, fallback=str)
    written = canonical(call.arguments)
    is_same = all(received.get(name) == value for name, value in written.items())
    return written if is_same else received


def _to_result(returned: Any) -> Result:
    """Return what a tool returned as a result that can be stored."""
    return Result(result=to_jsonable_python(returned, fallback=str))
