"""Run the program of docs/how-to/claude-agent-sdk.md with a scripted model: see scripted_mail.py.

The real Claude Code asks a model server of this process.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[4]))
os.environ |= {
    "HOME": str(Path("home").resolve()),
    "ANTHROPIC_API_KEY": "scripted",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
}

from scripted_mail import Script, load_program, report

from tests.hooks.real.scripted_models import ScriptedModel, Step, ToolCall

SUBAGENT = "You help with mails."  # in the prompt of a subagent, which has a script of its own


class MailModel(ScriptedModel):
    """Plays the script, with its ids of calls."""

    def answer_messages(self, request: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of the next turn."""
        if not request.get("tools"):  # a title
            return super().answer_messages(request)
        blocks = [
            block
            for message in request["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
        ]
        call_ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
        results = [block for block in blocks if block["type"] == "tool_result"]
        # As a model would, it repeats a call without result if it reads that this did not happen.
        missing = [block["tool_use_id"] for block in results if "interrupted" in _read_text(block)]
        if "did not happen. Make exactly this call again" in json.dumps(request["messages"]):
            call_ids = [identity for identity in call_ids if identity not in missing]
            results = [block for block in results if block["tool_use_id"] not in missing]
        is_subagent = SUBAGENT in json.dumps(request["messages"][0])
        script = Script("subagent.json" if is_subagent else "script.json")
        turn = script.next_turn(call_ids, [_read_text(block) for block in results])
        self.call_ids = [
            call["id"] + "-repeated" * (call["id"] in missing) for call in turn["calls"]
        ]
        calls = [ToolCall(_name_tool(call["name"]), call["args"]) for call in turn["calls"]]
        self.steps = [Step(turn.get("text", ""), calls)] * 100
        return super().answer_messages(request)

    def make_id(self, prefix: str) -> str:
        """Return the next id of the script for a call."""
        return self.call_ids.pop(0) if prefix == "toolu" else super().make_id(prefix)


def _name_tool(name: str) -> str:
    return name if name == "Agent" else f"mcp__mail__{name}"


def _read_text(block: dict[str, Any]) -> str:
    content = block["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


Path("home").mkdir(exist_ok=True)
program = load_program()
with MailModel([]) as model:
    # A subagent in the background would go on behind the end of the program.
    environment = {
        "ANTHROPIC_BASE_URL": model.address,
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    }
    # With a pipe of its own it does not keep the output of a killed process open.
    program.options = replace(program.options, env=environment, stderr=lambda _line: None)
    report(asyncio.run(program.work(*sys.argv[1:3])))
