"""Claude Agent SDK: options under which every tool call of Claude is an effect.

    gated = GatebookTools(session, tools={"mcp__mail__send_mail": GatedTool("mail.send")})
    server = gated.create_server("mail", [send_mail])
    options = gated.wrap_options(ClaudeAgentOptions(mcp_servers={"mail": server}))

A call that waits for people is deferred, and the run ends. `docs/how-to/claude-agent-sdk.md` of
Gatebook shows the whole program.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from claude_agent_sdk import (
    CanUseTool,
    ClaudeAgentOptions,
    HookMatcher,
    McpSdkServerConfig,
    PermissionResultAllow,
    PermissionResultDeny,
    SdkMcpTool,
    ToolPermissionContext,
    create_sdk_mcp_server,
)
from claude_agent_sdk.types import HookContext, HookInput, HookJSONOutput, PermissionResult

from gatebook_client.async_sessions import AsyncSession
from gatebook_client.effect_keys import compute_call_digest
from gatebook_client.errors import GatebookError
from gatebook_client.integrations.tool_calls import (
    BegunCall,
    Denied,
    Done,
    GatedTool,
    Held,
    Outcome,
    ToolCalls,
    describe_failure,
    make_current,
)
from gatebook_client.types import Json, Result

__all__ = ["GatebookTools", "GatedTool"]
# Claude describes a shell command in other words every time.
_DEFAULT_TOOLS = {"Bash": GatedTool(free_text=("description",))}
# No effects. The calls of a subagent are.
_NO_EFFECTS = ("Agent", "Task", "TodoWrite", "ToolSearch")

_WORDS = {
    "found": "was done. Do not repeat it.",
    "due": "did not happen. Make exactly this call again.",
}
_UNKNOWN = "may have happened. A person decides. Do not repeat it, and do not do it otherwise."


class GatebookTools:
    """Performs the tool calls of Claude as effects of a session, once each.

    A held call is deferred, which ends the run, and is in `waiting`, by call id. A resumed run asks
    Gatebook again. A refused call is answered with the reviewer's words. Tools of `create_server`
    are not called without permission, whatever Claude Code does, and a call of them that was done
    before gets its stored result. `tools`, `ungated` and the waits as in `ToolCalls`, under the
    names that Claude uses.
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
            {**_DEFAULT_TOOLS, **(tools or {})},
            (*_NO_EFFECTS, *ungated),
            wait_for_windows_s=wait_for_windows_s,
            to_result=_to_result,
        )
        self.waiting: dict[str, Held] = {}
        self._deferred = ""  # the call that ends the run
        self._begun: dict[str, BegunCall] = {}  # by call id
        self._served: set[str] = set()
        self._servers: dict[int, str] = {}
        # What the calls of served tools may do, by tool and digest, in the order of permission.
        self._permitted: defaultdict[tuple[str, str], list[BegunCall | Done]] = defaultdict(list)
        self._can_use_tool: CanUseTool | None = None

    def create_server(
        self, name: str, tools: Iterable[SdkMcpTool[Any]], version: str = "1.0.0"
    ) -> McpSdkServerConfig:
        """Create an MCP server in this process, as `create_sdk_mcp_server` does.

        The options must list it under the same name.
        """
        gated = [
            replace(tool, handler=self._wrap_handler(_name_tool(name, tool.name), tool))
            for tool in tools
        ]
        config = create_sdk_mcp_server(name, version, gated)
        self._servers[id(config["instance"])] = name
        return config

    def wrap_options(self, options: ClaudeAgentOptions) -> ClaudeAgentOptions:
        """Return options under which Gatebook rules on every call.

        Hooks and `can_use_tool` of the options still work, and can refuse too. Raises ValueError
        for options that would keep Gatebook out.
        """
        if options.permission_prompt_tool_name:
            raise ValueError(
                "Leave out permission_prompt_tool_name: Gatebook answers by `can_use_tool`."
            )
        servers = options.mcp_servers if isinstance(options.mcp_servers, dict) else {}
        for key, config in servers.items():
            name = self._servers.get(id(config.get("instance")), key)
            if name != key:
                raise ValueError(f"List the server {name} under its own name, not as {key}.")
        self._can_use_tool = options.can_use_tool
        before = HookMatcher(hooks=[self._plan_call], on_failure="block")
        after = HookMatcher(hooks=[self._report_call])
        hooks = dict(options.hooks or {})
        hooks["PreToolUse"] = [*hooks.get("PreToolUse", []), before]
        hooks["PostToolUse"] = [*hooks.get("PostToolUse", []), after]
        hooks["PostToolUseFailure"] = [*hooks.get("PostToolUseFailure", []), after]
        allowed = [
            entry
            for entry in options.allowed_tools
            if not self.calls.is_gated(entry.partition("(")[0])
        ]
        return replace(options, hooks=hooks, can_use_tool=self._permit_call, allowed_tools=allowed)

    async def settle_open_calls(self) -> str:
        """Find out what became of calls of a process that was killed; return a prompt about them.

        Claude Code tells the model only that their results are missing. Probes are run; a call that
        nobody can know about is left to a person. "" if there are none.
        """
        session = self.calls.session
        filters: Json = {"session": session.id, "state": "dispatched", "limit": 200}
        begun = (await session.http.get("/effects", **filters)).body["items"]
        if not begun:
            return ""
        for name, gated in self.calls.tools.items():
            tool = gated.tool or name
            session.register(tool, probe=gated.probe, compensate=gated.compensate)
        recovery = await session.recover(wait_for_people_s=0)
        results = {step.effect: step.result for step in recovery.steps}
        lines = []
        for effect in reversed(begun):
            plan = (await session.http.get(f"/effects/{effect['id']}/plan")).body
            call = f"{effect['handle']} ({effect['tool']} {json.dumps(plan.get('arguments'))})"
            lines.append(f"{call} {_WORDS.get(results.get(effect['id'], ''), _UNKNOWN)}")
        return "An earlier process was killed during these calls:\n" + "\n".join(lines)

    async def _plan_call(
        self, event: HookInput, _call_id: str | None, _context: HookContext
    ) -> HookJSONOutput:
        """Defer a call that waits for people; let `can_use_tool` decide on every other."""
        call = cast(Json, event)
        name, call_id = str(call["tool_name"]), str(call["tool_use_id"])
        if not self.calls.is_gated(name):
            return {}
        self.waiting.pop(call_id, None)
        if self._deferred == call_id:
            self._deferred = ""
        try:
            planned_id = await self.calls.find_approved(name, call["tool_input"], call_id)
            held = await self.calls.find_wait(name, call["tool_input"], planned_id)
        except Exception as error:
            return _decide("deny", f"{name} was not executed: {error}")
        if held is None:
            return _decide("ask", "Gatebook rules on this call.")
        self.waiting[call_id] = held
        # A subagent cannot be put off. Of several deferred calls, Claude Code forgets all but one.
        if call.get("agent_id") or self._deferred:
            return _decide("deny", held.next_step)
        self._deferred = call_id
        return _decide("defer", held.next_step)

    async def _permit_call(
        self, name: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResult:
        """Use the permission of a call; Claude Code runs it only after this."""
        if self._can_use_tool is not None:
            answer = await self._can_use_tool(name, arguments, context)
            if not isinstance(answer, PermissionResultAllow) or not self.calls.is_gated(name):
                return answer
            if answer.updated_input is not None:
                arguments = answer.updated_input
        elif not self.calls.is_gated(name):
            sentence = f"{name} is not gated. Allow it in `allowed_tools`, or by `can_use_tool`."
            return PermissionResultDeny(message=sentence)
        call_id = context.tool_use_id or ""
        meta = {"framework": "claude-agent-sdk", "agent_id": context.agent_id or ""}
        try:
            planned_id = await self.calls.find_approved(name, arguments, call_id)
            outcome = await self.calls.begin(name, arguments, call_id=planned_id, meta=meta)
        except Exception as error:
            return PermissionResultDeny(message=f"{name} was not executed: {error}")
        return self._answer_outcome(name, arguments, call_id, outcome)

    def _answer_outcome(
        self, name: str, arguments: dict[str, Any], call_id: str, outcome: BegunCall | Outcome
    ) -> PermissionResult:
        if isinstance(outcome, Held):
            self.waiting[call_id] = outcome
            return PermissionResultDeny(message=outcome.next_step)
        if isinstance(outcome, Denied):
            return PermissionResultDeny(message=outcome.message)
        if isinstance(outcome, BegunCall):
            self._begun[call_id] = outcome
        if name in self._served:
            self._permitted[name, compute_call_digest(name, arguments)].append(outcome)
        elif isinstance(outcome, Done):
            return PermissionResultDeny(message=_describe_done(name, outcome))
        return PermissionResultAllow(updated_input=arguments)

    async def _report_call(
        self, event: HookInput, _call_id: str | None, _context: HookContext
    ) -> HookJSONOutput:
        """Report what a call returned, if its tool has not done so itself."""
        call = cast(Json, event)
        begun = self._begun.pop(str(call["tool_use_id"]), None)
        if begun is None:
            return {}
        if call["hook_event_name"] == "PostToolUse":
            result = Result(result=call.get("tool_response"))
        else:
            outcome = "unknown" if call.get("is_interrupt") else "error"
            result = Result(outcome, result={"error": call.get("error")})
        with suppress(Exception):  # of the tool, or sent by the next call of the session
            await begun.report(result)
        return {}

    def _wrap_handler(self, name: str, tool: SdkMcpTool[Any]) -> Any:
        """Return the handler of a tool that runs only for a call with permission."""
        self._served.add(name)

        async def handle(arguments: Any) -> dict[str, Any]:
            permitted = self._permitted[name, compute_call_digest(name, arguments)]
            if not permitted:
                return _make_text(f"{name} was not executed: it has no permission.", is_error=True)
            call = permitted.pop(0)
            if isinstance(call, Done):
                return _build_content(name, call)
            with make_current(call.current):
                try:
                    returned = await tool.handler(arguments)
                except Exception as error:
                    outcome = await call.report(error)
                    if isinstance(outcome, Denied):
                        return _make_text(outcome.message, is_error=True)
                    raise
            with suppress(GatebookError):  # it happened; the next call sends the report
                await call.report(returned)
            return returned

        return handle


def _name_tool(server: str, tool: str) -> str:
    """Return the name under which Claude calls a tool of a server."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", f"mcp__{server}__{tool}")


def _decide(decision: str, reason: str) -> HookJSONOutput:
    output = {
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": reason,
    }
    return cast(HookJSONOutput, {"hookSpecificOutput": output})


def _describe_done(name: str, done: Done) -> str:
    if not done.again:
        return f"{name} was done."
    how = "failed" if done.failed else "was done"
    return f"{name} {how} before, and is not repeated. Its result was: {done.stored_result}"


def _build_content(name: str, done: Done) -> dict[str, Any]:
    """Return the stored result of a call as its tool returned it."""
    stored = done.stored_result
    if isinstance(stored, dict) and isinstance(stored.get("content"), list):
        return stored
    text = describe_failure(stored) if done.failed else str(stored)
    return _make_text(text or _describe_done(name, done), is_error=done.failed)


def _make_text(text: str, *, is_error: bool) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "is_error": is_error}


def _to_result(returned: Any) -> Result:
    """Return what a tool returned as a result that can be stored."""
    if isinstance(returned, Result):
        return returned
    failed = isinstance(returned, dict) and bool(returned.get("is_error"))
    return Result("error" if failed else "ok", result=returned)
