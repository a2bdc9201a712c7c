"""Pydantic AI: a capability that makes every tool call an effect.

    gatebook = GatebookCapability(session, tools={"send_mail": GatedTool("mail.send")})
    await agent.run(prompt, capabilities=[gatebook])

A call that waits for people ends the run with `DeferredToolRequests`, which must be among the
output types. `docs/how-to/pydantic-ai.md` of Gatebook shows the whole program.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai import ApprovalRequired, ModelRetry, RunContext, ToolReturn
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart
from pydantic_ai.tools import DeferredToolResults
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_core import to_jsonable_python

from gatebook_client.async_sessions import AsyncSession
from gatebook_client.integrations.tool_calls import (
    Denied,
    GatedTool,
    Held,
    ToolCalls,
    describe_failure,
)
from gatebook_client.types import Result

__all__ = ["GatebookCapability", "GatebookToolset", "GatedTool", "approve_open_calls"]


@dataclass
class GatebookToolset(WrapperToolset[Any]):
    """Performs the calls of a toolset as effects, for `GatebookCapability`."""

    calls: ToolCalls[AsyncSession]

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Perform a call as an effect; the tool is called only with permission."""
        if not self.calls.is_gated(name):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        outcome = await self.calls.perform(
            name,
            to_jsonable_python(tool_args),
            lambda: self.wrapped.call_tool(name, tool_args, ctx, tool),
            call_id=ctx.tool_call_id or "",
            meta={"framework": "pydantic-ai", "agent": getattr(ctx.agent, "name", None) or ""},
        )
        if isinstance(outcome, Held):
            raise ApprovalRequired(metadata=outcome.to_json())
        if isinstance(outcome, Denied):
            raise ToolFailed(outcome.message)
        if not outcome.again:
            return outcome.value
        if outcome.failed:
            raise ToolFailed(describe_failure(outcome.stored_result))
        return outcome.stored_result


class GatebookCapability(AbstractCapability[Any]):
    """Performs the tool calls of a run as effects of a session, once each.

    Pass it to a run. A held call raises `ApprovalRequired`, whose metadata name the effect and the
    gate; an approval of the framework permits nothing by itself, because Gatebook rules again when
    the call is repeated. A refused call is answered with the reviewer's words. Calls that the
    model's provider executes (native tools) and external tools are not seen. `tools`, `ungated` and
    the waits as in `ToolCalls`.
    """

    def __init__(
        self,
        session: AsyncSession,
        *,
        tools: Mapping[str, GatedTool] | None = None,
        ungated: Collection[str] = (),
        wait_for_people_s: float | None = 0.0,
        wait_for_windows_s: float | None = None,
    ) -> None:
        super().__init__()
        self.calls = ToolCalls(
            session,
            tools or {},
            ungated,
            wait_for_people_s,
            wait_for_windows_s,
            failures=(ModelRetry, ToolFailed),
            to_result=_to_result,
        )

    def get_ordering(self) -> CapabilityOrdering:
        """Run inside all other capabilities: people see the arguments that the tool gets."""
        return CapabilityOrdering(position="innermost")

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> GatebookToolset:
        """Wrap the tools of a run."""
        return GatebookToolset(toolset, self.calls)


def approve_open_calls(messages: Sequence[ModelMessage]) -> DeferredToolResults | None:
    """Return results that let a run continue with all calls without an answer, or None.

    For `deferred_tool_results`, after an interruption or a crash. Every call goes through Gatebook
    again, which calls the tool only with permission and only once.
    """
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            answered |= {str(getattr(part, "tool_call_id", "")) for part in message.parts}
        elif isinstance(message, ModelResponse):
            open_ids = [
                part.tool_call_id
                for part in message.parts
                if isinstance(part, ToolCallPart) and part.tool_call_id not in answered
            ]
            return (
                DeferredToolResults(approvals=dict.fromkeys(open_ids, True)) if open_ids else None
            )
    return None


def _to_result(returned: Any) -> Result:
    """Return what a tool returned as a result that can be stored."""
    if isinstance(returned, Result):
        return returned
    if isinstance(returned, ToolReturn):
        returned = returned.return_value
    return Result(result=to_jsonable_python(returned, fallback=str))
