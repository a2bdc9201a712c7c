"""OpenAI Agents SDK: function tools whose calls are effects.

    gatebook = GatebookTools(session, tools={"send_mail": GatedTool("mail.send")})
    agent = gatebook.wrap_agent(agent)

A call that waits for people interrupts the run. `settle` continues a stored `RunState`.
`docs/how-to/openai-agents.md` of Gatebook shows the whole program.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from agents import Agent, FunctionTool, RunContextWrapper, RunState, Tool
from agents.exceptions import ModelBehaviorError
from agents.tool import (
    maybe_invoke_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext

from gatebook_client.async_sessions import AsyncSession
from gatebook_client.errors import NotYet, PermissionRefused
from gatebook_client.integrations.tool_calls import (
    Denied,
    GatedTool,
    Held,
    ToolCalls,
    read_error,
)
from gatebook_client.types import Result

__all__ = ["GatebookTools", "GatedTool"]


class GatebookTools:
    """Performs the calls of function tools as effects of a session, once each.

    A held call interrupts the run as a tool that needs approval does. An approval of the SDK
    permits nothing by itself, because Gatebook rules again when the tool is called. A refused call
    is answered with the reviewer's words. `tools`, `ungated` and the waits as in `ToolCalls`.
    """

    def __init__(
        self,
        session: AsyncSession,
        *,
        tools: Mapping[str, GatedTool] | None = None,
        ungated: Collection[str] = (),
        wait_for_windows_s: float | None = None,
    ) -> None:
        self.session = session
        self.calls = ToolCalls(
            session,
            tools or {},
            ungated,
            wait_for_windows_s=wait_for_windows_s,
            to_result=_to_result,
        )

    def wrap_agent(self, agent: Agent[Any]) -> Agent[Any]:
        """Return a copy of an agent with gated tools.

        Raises TypeError if it has MCP servers or tools that cannot be held.
        """
        if agent.mcp_servers:
            raise TypeError(
                f"The calls of {agent.name}'s MCP servers cannot be held. Start them by `gatebook"
                " mcp-proxy`, and wrap the agent without them."
            )
        return agent.clone(tools=self.wrap_tools(agent.tools))

    def wrap_tools(self, tools: Iterable[Tool]) -> list[Tool]:
        """Return gated copies of tools; an agent as a tool is no effect, and stays as it is.

        Raises TypeError for a tool that is no function tool and not in `ungated`.
        """
        return [self._wrap_tool(tool) for tool in tools]

    def _wrap_tool(self, tool: Tool) -> Tool:
        if not self.calls.is_gated(tool.name) or getattr(tool, "_is_agent_tool", False):
            return tool
        if not isinstance(tool, FunctionTool):
            raise TypeError(
                f"{tool.name} is a {type(tool).__name__}, whose calls cannot be held. Leave it out,"
                " or allow it by name in `ungated`."
            )
        # Its errors must reach Gatebook before they become an answer to the model.
        inner = set_function_tool_failure_error_function(replace(tool), None)

        async def needs_approval(
            context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str
        ) -> bool:
            asks = tool.needs_approval
            if callable(asks):
                asks = await asks(context, arguments, call_id)
            if asks:
                return True
            return await self.calls.find_wait(tool.name, arguments, call_id) is not None

        async def invoke(context: ToolContext[Any], text: str) -> Any:
            return await self._invoke(tool, inner, context, text)

        return replace(tool, on_invoke_tool=invoke, needs_approval=needs_approval)

    async def _invoke(
        self, tool: FunctionTool, inner: FunctionTool, context: ToolContext[Any], text: str
    ) -> Any:
        """Perform a call as an effect; the tool is called only with permission."""
        raised: list[Exception] = []

        async def call_tool() -> Any:
            try:
                return await inner.on_invoke_tool(context, text)
            except Exception as error:
                raised.append(error)
                raise

        try:
            outcome = await self.calls.perform(
                tool.name,
                _parse_arguments(tool.name, text),
                call_tool,
                call_id=context.tool_call_id,
                meta={"framework": "openai-agents", "agent": getattr(context.agent, "name", "")},
            )
        except Exception as error:
            if error not in raised and not isinstance(error, ModelBehaviorError):
                raise  # of Gatebook: the run ends
            answer = await maybe_invoke_function_tool_failure_error_function(
                function_tool=tool, context=context, error=error
            )
            if answer is None:
                raise
            return answer
        if isinstance(outcome, Held):
            raise outcome.error or RuntimeError(outcome.message)
        if isinstance(outcome, Denied):
            return outcome.message
        return outcome.stored_result if outcome.again else outcome.value

    async def settle(self, state: RunState[Any, Agent[Any]]) -> list[Held]:
        """Approve or reject the interruptions of a stored run as Gatebook rules now.

        Return the calls that still wait. Interruptions of tools that are not gated are left alone.
        """
        waiting: list[Held] = []
        for item in state.get_interruptions():
            name, call_id = item.name or "", item.call_id or ""
            if not call_id or not self.calls.is_gated(name):
                continue
            arguments = _parse_arguments(name, item.arguments or "{}")
            try:
                await self.calls.check_change_request(call_id)
                planned = await self.session.plan(
                    **self.calls.describe_call(name, arguments), call_id=call_id
                )
                if planned.answer in ("wait", "blocked"):
                    await self.session.wait(planned, wait_s=0)
            except (NotYet, PermissionRefused) as error:
                outcome = read_error(name, error)
                if isinstance(outcome, Held):
                    waiting.append(outcome)
                else:
                    state.reject(item, rejection_message=outcome.message)
            else:
                state.approve(item)
        return waiting


def _parse_arguments(name: str, text: str) -> dict[str, Any]:
    """Return the arguments of a call. Raises ModelBehaviorError if they are no JSON object."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise ModelBehaviorError(
            f"The arguments of {name} are not a JSON object; nothing was done."
        )
    return arguments


def _to_result(returned: Any) -> Result:
    """Return what a tool returned as a result that can be stored."""
    if isinstance(returned, Result):
        return returned
    return Result(result=returned.model_dump() if hasattr(returned, "model_dump") else returned)
