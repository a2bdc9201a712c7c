"""Run the program of docs/how-to/langgraph.md with a scripted model: see scripted_mail.py."""

import asyncio
import os
import sys
from typing import Any

import gatebook_client as gatebook
from gatebook_client.integrations.langgraph import GatebookMiddleware, GatedTool
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from scripted_mail import Script, load_program, report


class ScriptedModel(BaseChatModel):
    """Returns the turns of the script."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, _tools: Any, **_options: Any) -> "ScriptedModel":
        """Take any tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *_more: Any, **_options: Any) -> ChatResult:
        results = [str(m.content) for m in messages if isinstance(m, ToolMessage)]
        call_ids = [
            str(call["id"]) for m in messages if isinstance(m, AIMessage) for call in m.tool_calls
        ]
        turn = script.next_turn(call_ids, results)
        calls = [{**call, "type": "tool_call"} for call in turn["calls"]]
        message = AIMessage(turn.get("text", ""), tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


async def work_async(key: str, prompt: str) -> str:
    """Do the same with an async session, and without a checkpoint between processes."""
    async with gatebook.async_session(key=key, end_on_exit=False, wait_for_lease_s=120) as session:
        mail = GatedTool("mail.send", probe=program.is_delivered)
        gated = GatebookMiddleware(session, tools={"send_mail": mail})
        graph = create_agent(
            program.model, [program.send_mail], middleware=[gated], checkpointer=InMemorySaver()
        )
        config: Any = {"configurable": {"thread_id": key}}
        result = await graph.ainvoke({"messages": [("user", prompt)]}, config)
    waiting = [item.value["gate_url"] for item in result.get("__interrupt__", [])]
    return "\n".join(waiting) or str(result["messages"][-1].content)


script = Script()
program = load_program()
program.model = ScriptedModel()
if os.environ.get("ASYNC"):
    report(asyncio.run(work_async(*sys.argv[1:3])))
else:
    report(program.work(*sys.argv[1:3]))
