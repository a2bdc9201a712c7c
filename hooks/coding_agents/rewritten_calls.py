"""Shell commands that `gatebook exec` runs: it dispatches the effect itself, just before it acts.

This gate stays closed while Gatebook is away, and the exit code is reported as it was.
"""

import json
import shlex
from typing import Any, Final

from hooks.coding_agents.call_intents import CallIntent
from hooks.coding_agents.hook_events import HookEvent

PROGRAM: Final = "gatebook exec"
WAIT_S: Final = 60  # for a permission that was withdrawn after the answer


def rewrite_input(
    event: HookEvent, intent: CallIntent, session_key: str, effect_key: str
) -> dict[str, Any]:
    """Return the input of a shell call with the command that runs it under its effect."""
    arguments = json.dumps(intent.arguments, separators=(",", ":"), ensure_ascii=False)
    words = ("--session", session_key, "--key", effect_key, "--tool", intent.tool)
    options = " ".join(shlex.quote(word) for word in (*words, "--arguments", arguments))
    command = f"{PROGRAM} {options} --wait {WAIT_S} -- bash -c {shlex.quote(intent.command)}"
    return {**event.input, "command": command}


def find_effect_key(command: str) -> str:
    """Return the effect key in a command that was rewritten; empty for any other command.

    It is exactly what `rewrite_input` writes: a command with more than that does something else.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    if len(words) != 16 or shlex.join(words) != command:
        return ""
    names = (*words[:3], words[4], words[6], words[8], words[10], *words[12:15])
    return words[5] if names == _WRITTEN else ""


_WRITTEN: Final = (
    *("gatebook", "exec", "--session", "--key", "--tool", "--arguments", "--wait"),
    *("--", "bash", "-c"),
)
