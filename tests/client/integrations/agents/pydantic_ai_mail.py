"""Run the program of docs/how-to/pydantic-ai.md with a scripted model: see scripted_mail.py."""

import asyncio
import sys
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from scripted_mail import Script, load_program, report


def answer_request(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Return the next turn of the script."""
    parts = [part for message in messages for part in message.parts]
    results = [part.model_response_str() for part in parts if isinstance(part, ToolReturnPart)]
    call_ids = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
    turn = script.next_turn(call_ids, results)
    answer: list[Any] = [
        ToolCallPart(call["name"], call["args"], tool_call_id=call["id"])
        for call in turn.get("calls", [])
    ]
    return ModelResponse(parts=answer or [TextPart(turn["text"])])


script = Script()
program = load_program()
with program.agent.override(model=FunctionModel(answer_request)):
    report(asyncio.run(program.work(*sys.argv[1:3])))
