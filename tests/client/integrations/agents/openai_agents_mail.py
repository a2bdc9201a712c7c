"""Run the program of docs/how-to/openai-agents.md with a scripted model: see scripted_mail.py."""

import asyncio
import json
import sys
from typing import Any

from agents import Model, ModelResponse, Usage, set_tracing_disabled
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from scripted_mail import Script, load_program, report


class ScriptedModel(Model):
    """Returns the turns of the script."""

    async def get_response(self, *_all: Any, **options: Any) -> ModelResponse:
        """Return the next turn."""
        items = [] if isinstance(options["input"], str) else options["input"]
        outputs = [item for item in items if item.get("type") == "function_call_output"]
        call_ids = [item["call_id"] for item in items if item.get("type") == "function_call"]
        turn = script.next_turn(call_ids, [str(item["output"]) for item in outputs])
        output: list[Any] = [
            ResponseFunctionToolCall(
                type="function_call",
                name=call["name"],
                arguments=json.dumps(call["args"]),
                call_id=call["id"],
            )
            for call in turn["calls"]
        ]
        if "text" in turn:
            text = ResponseOutputText(type="output_text", text=turn["text"], annotations=[])
            output = [
                ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_all: Any, **_options: Any) -> Any:
        """Not used."""
        raise NotImplementedError


set_tracing_disabled(True)
script = Script()
program = load_program()
program.agent.model = ScriptedModel()
report(asyncio.run(program.work(*sys.argv[1:3])))
