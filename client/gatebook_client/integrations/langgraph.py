"""LangGraph and LangChain: a middleware that makes every tool call an effect.

    gatebook = GatebookMiddleware(session, tools={"send_mail": GatedTool("mail.send")})
    graph = create_agent(model, tools, middleware=[gatebook], checkpointer=saver)

A call that waits for people interrupts the graph, which needs a checkpointer for that.
`docs/how-to/langgraph.md` of Gatebook shows the whole program.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeAlias

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.types import Command, StateSnapshot, interrupt

from gatebook_client.async_sessions import AsyncSession
from gatebook_client.integrations.tool_calls import Denied, Done, GatedTool, Held, ToolCalls
from gatebook_client.sessions import Session
from gatebook_client.types import Json, Result

__all__ = ["GatebookMiddleware", "GatedTool", "resume_interrupts"]
Answer: TypeAlias = ToolMessage | Command[Any]
_META = {"framework": "langgraph"}


class GatebookMiddleware(AgentMiddleware[Any, Any, Any]):
    """Performs the tool calls of an agent as effects of a session, once each.

    With a session of `gatebook_client.session` for `invoke` and `stream`, of `async_session` for
    `ainvoke` and `astream`. A held call interrupts the graph. What the graph is resumed with
    permits nothing, because Gatebook rules again when the call is repeated. A refused call is
    answered with the reviewer's words. `tools`, `ungated` and the waits as in `ToolCalls`.
    """

    def __init__(
        self,
        session: Session | AsyncSession,
        *,
        tools: Mapping[str, GatedTool] | None = None,
        ungated: Collection[str] = (),
        wait_for_people_s: float | None = 0.0,
        wait_for_windows_s: float | None = None,
    ) -> None:
        super().__init__()
        how: dict[str, Any] = {
            "tools": tools or {},
            "ungated": ungated,
            "wait_for_people_s": wait_for_people_s,
            "wait_for_windows_s": wait_for_windows_s,
            "to_result": _to_result,
        }
        self.blocking: ToolCalls[Session] | None = None
        self.awaiting: ToolCalls[AsyncSession] | None = None
        if isinstance(session, Session):
            self.blocking = ToolCalls(session, **how)
        else:
            self.awaiting = ToolCalls(session, **how)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Answer]
    ) -> Answer:
        """Perform the call as an effect; `handler` is called only with permission."""
        if self.blocking is None:
            raise TypeError("The session is async: call the graph by `ainvoke` or `astream`.")
        call = request.tool_call
        if not self.blocking.is_gated(call["name"]):
            return handler(request)
        while True:
            outcome = self.blocking.perform_blocking(
                call["name"],
                call["args"],
                lambda: handler(request),
                call_id=call["id"] or "",
                meta=_META,
            )
            if not isinstance(outcome, Held):
                return _build_answer(request, outcome)
            interrupt(_describe_interrupt(request, outcome))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Answer]]
    ) -> Answer:
        """Perform the call as an effect; `handler` is called only with permission."""
        if self.awaiting is None:
            raise TypeError(
                "LangGraph calls this tool asynchronously, and the session is blocking. "
                "Open it by `async_session`."
            )
        call = request.tool_call
        if not self.awaiting.is_gated(call["name"]):
            return await handler(request)
        while True:
            outcome = await self.awaiting.perform(
                call["name"],
                call["args"],
                lambda: handler(request),
                call_id=call["id"] or "",
                meta=_META,
            )
            if not isinstance(outcome, Held):
                return _build_answer(request, outcome)
            interrupt(_describe_interrupt(request, outcome))


def resume_interrupts(state: StateSnapshot) -> Command[Any] | None:
    """Return the input that continues a graph where it stopped; None after a crash or an end.

    `state` is what `graph.get_state(config)` returns. Every interrupted call asks Gatebook again.
    """
    waiting = {item.id: True for item in state.interrupts}
    return Command(resume=waiting) if waiting else None


def _describe_interrupt(request: ToolCallRequest, held: Held) -> Json:
    """Return what the graph's caller sees: the held call, with its id, and its gate."""
    call = request.tool_call
    return held.to_json() | {
        "tool_call": {"name": call["name"], "args": call["args"], "id": call["id"]}
    }


def _build_answer(request: ToolCallRequest, outcome: Done | Denied) -> Answer:
    """Return the message that answers a call."""
    call = request.tool_call
    name, call_id = call["name"], call["id"]
    if isinstance(outcome, Denied):
        return ToolMessage(outcome.message, tool_call_id=call_id, name=name, status="error")
    if not outcome.again:
        answer: Answer = outcome.value
        return answer
    content = outcome.stored_result
    if not isinstance(content, str | list):
        content = str(content)
    status = "error" if outcome.failed else "success"
    return ToolMessage(content, tool_call_id=call_id, name=name, status=status)


def _to_result(returned: Any) -> Result:
    """Return the answer of a tool as a result that can be stored."""
    if isinstance(returned, ToolMessage):
        failed = returned.status == "error"
        return Result("error" if failed else "ok", result=returned.content)
    return Result(result=f"The tool returned a {type(returned).__name__}.")
