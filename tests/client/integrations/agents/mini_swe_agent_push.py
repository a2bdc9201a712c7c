"""Run the program of docs/how-to/mini-swe-agent.md; scripted_mail.py has model and marks."""

import sys
from typing import Any

from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.test_models import DeterministicToolcallModel
from scripted_mail import Script, load_module, mark, report

execute = LocalEnvironment.execute


def execute_marked(environment: Any, action: dict[str, str], *more: Any, **named: Any) -> Any:
    """Mark the beginning and the end of a command."""
    mark("before")
    output = execute(environment, action, *more, **named)
    mark("after")
    return output


class ScriptedModel(DeterministicToolcallModel):
    """Returns the turns of the script."""

    def query(self, messages: list[dict[str, Any]], **_options: Any) -> dict[str, Any]:
        """Return the next turn; its text ends the run."""
        results = [str(part["content"]) for part in messages if part["role"] == "tool"]
        calls = [
            action["tool_call_id"]
            for part in messages
            if part["role"] == "assistant"
            for action in part["extra"]["actions"]
        ]
        turn = Script().next_turn(calls, results)
        actions = [
            {"command": call["args"]["command"], "tool_call_id": call["id"]}
            for call in turn["calls"]
        ]
        if not actions:
            end = f"printf 'COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\\n{turn['text']}'"
            actions = [{"command": end, "tool_call_id": "end"}]
        tool_calls = [
            {"id": action["tool_call_id"], "function": {"name": "bash", "arguments": "{}"}}
            for action in actions
        ]
        return {
            "role": "assistant",
            "content": "",
            "tool_calls": tool_calls,
            "extra": {"actions": actions, "cost": 0.0},
        }


program = load_module()
LocalEnvironment.execute = execute_marked
program.model = ScriptedModel(outputs=[])
report(program.work(*sys.argv[1:3]))
