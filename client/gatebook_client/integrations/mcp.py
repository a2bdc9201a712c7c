"""MCP Python SDK: a client session whose tool calls are effects.

    gated = GatebookSession(client, session, tools={"send_mail": GatedTool("mail.send")})
    result = await gated.call_tool("send_mail", {"to": "ada"}, call_id=call.id)

A call that waits for people raises `NotYet`. `docs/how-to/mcp-session.md` of Gatebook shows the
whole program.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from mcp import MCPError
from mcp.types import CallToolResult, TextContent

from gatebook_client.async_sessions import AsyncSession
from gatebook_client.effect_keys import CallCounter, compute_call_digest
from gatebook_client.errors import Rejected
from gatebook_client.integrations.tool_calls import (
    Denied,
    Done,
    GatedTool,
    Held,
    ToolCalls,
    get_current_call,
)
from gatebook_client.types import Result

__all__ = ["GatebookSession", "GatedTool"]
# Codes at which the server has not begun a call: not JSON, no request, no such method, parameters.
_NOT_BEGUN = (-32700, -32600, -32601, -32602)


class ToolCaller(Protocol):
    """What calls tools: a client, a client session or a session group of the SDK."""

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        read_timeout_seconds: float | None = None,
        progress_callback: Any = None,
        *,
        meta: Any = None,
    ) -> CallToolResult:
        """Call a tool of the server."""
        ...


class GatebookSession:
    """Performs the tool calls of an MCP client session as effects of a session, once each.

    A held call raises `NotYet`, or HumanDecisionRequired where a person must say what became of an
    earlier attempt. A refused call returns an error result with the reviewer's words. Everything
    else of the MCP session (`list_tools` …) is passed on. With `key_meta`, the key of the attempt
    is sent to the server under that name in `_meta`. `tools`, `ungated` and the waits as in
    `ToolCalls`.
    """

    def __init__(
        self,
        caller: ToolCaller,
        session: AsyncSession,
        *,
        tools: Mapping[str, GatedTool] | None = None,
        ungated: Collection[str] = (),
        wait_for_people_s: float | None = 0.0,
        wait_for_windows_s: float | None = None,
        key_meta: str = "",
        server: str = "",
    ) -> None:
        self.caller = caller
        self.calls = ToolCalls(
            session,
            tools or {},
            ungated,
            wait_for_people_s,
            wait_for_windows_s,
            to_result=_to_result,
        )
        self.key_meta = key_meta
        self.server = server
        self._counter = CallCounter()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.caller, name)

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        read_timeout_seconds: float | None = None,
        progress_callback: Any = None,
        *,
        meta: Mapping[str, Any] | None = None,
        call_id: str = "",
    ) -> CallToolResult:
        """Perform a call as an effect; the server gets it only with permission.

        `call_id` is the model's id of the call. Without it, equal calls are counted, so that a
        program that restarts from its beginning gets the results of its earlier process.
        """
        sent: dict[str, Any] = dict(meta or {})

        async def call_server() -> CallToolResult:
            if self.key_meta and self.calls.is_gated(name):
                sent[self.key_meta] = get_current_call().remote_key
            try:
                return await self.caller.call_tool(
                    name, arguments, read_timeout_seconds, progress_callback, meta=sent or None
                )
            except MCPError as error:
                if error.code in _NOT_BEGUN:
                    raise Rejected(str(error.message)) from error
                raise

        if not self.calls.is_gated(name):
            return await call_server()
        facts = {"framework": "mcp", "server": self.server}
        if call_id:
            outcome = await self._perform(name, arguments, call_server, call_id, facts)
        else:
            digest = compute_call_digest(name, arguments or {})
            async with self._locks[digest]:
                call_id = f"mcp-{digest[:16]}-{self._counter.take(digest)}"
                try:
                    outcome = await self._perform(name, arguments, call_server, call_id, facts)
                except BaseException:
                    self._counter.give_back(digest)
                    raise
        return _build_result(outcome)

    async def _perform(
        self, name: str, arguments: Any, call_server: Any, call_id: str, facts: dict[str, str]
    ) -> Done | Denied:
        outcome = await self.calls.perform(
            name, arguments or {}, call_server, call_id=call_id, meta=facts
        )
        if isinstance(outcome, Held):
            raise outcome.error or RuntimeError(outcome.message)
        return outcome


def _build_result(outcome: Done | Denied) -> CallToolResult:
    """Return the result of a call as the server sent it, or as a text about it."""
    if isinstance(outcome, Denied):
        return _make_text_result(outcome.message, is_error=True)
    if not outcome.again:
        result: CallToolResult = outcome.value
        return result
    stored = outcome.stored_result
    if isinstance(stored, dict) and isinstance(stored.get("content"), list):
        return CallToolResult.model_validate(stored)
    return _make_text_result(str(stored), is_error=outcome.failed)


def _make_text_result(text: str, *, is_error: bool) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


def _to_result(returned: Any) -> Result:
    """Return the answer of a server as a result that can be stored."""
    if not isinstance(returned, CallToolResult):  # the server asks for more
        return Result("unknown", result=str(returned))
    stored = returned.model_dump(mode="json", by_alias=True, exclude_none=True)
    return Result("error" if returned.is_error else "ok", result=stored)
