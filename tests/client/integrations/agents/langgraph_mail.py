"""Run the program of docs/how-to/langgraph.md with a scripted model: see scripted_mail.py."""

import sys
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
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


script = Script()
program = load_program()
program.model = ScriptedModel()
report(program.work(*sys.argv[1:3]))
