"""Run the program of docs/how-to/inspect.md with a scripted model: see scripted_mail.py."""

import os
import sys
from typing import Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ModelAPI,
    ModelOutput,
    get_model,
    modelapi,
)
from inspect_ai.tool import ToolCall
from scripted_mail import Script, load_program, report


@modelapi(name="scripted")
class ScriptedModel(ModelAPI):
    """Returns the turns of the script."""

    async def generate(self, *positional: Any, **named: Any) -> ModelOutput:
        """Return the next turn."""
        messages: list[ChatMessage] = named["input"] if "input" in named else positional[0]
        results = [
            m.error.message if m.error else m.text
            for m in messages
            if isinstance(m, ChatMessageTool)
        ]
        call_ids = [
            call.id
            for m in messages
            if isinstance(m, ChatMessageAssistant)
            for call in m.tool_calls or []
        ]
        turn = Script().next_turn(call_ids, results)
        calls = [ToolCall(call["id"], call["name"], call["args"]) for call in turn["calls"]]
        message = ChatMessageAssistant(content=turn.get("text", ""), tool_calls=calls or None)
        return ModelOutput(model="scripted", choices=[ChatCompletionChoice(message=message)])


os.environ["INSPECT_LOG_DIR"] = "logs"
program = load_program()
program.model = get_model("scripted/mail")
report(program.work(*sys.argv[1:3]))
