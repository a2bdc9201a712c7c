"""Shell commands that `gatebook exec` runs: it dispatches the effect itself, just before it acts.

This gate stays closed while Gatebook is away, and the exit code is reported as it was.
"""

import json
import re
import shlex
from typing import Any, Final

from hooks.coding_agents.call_intents import CallIntent
from hooks.coding_agents.hook_events import HookEvent

PROGRAM: Final = "gatebook exec"
WAIT_S: Final = 60  # for a permission that was withdrawn after the answer
_EFFECT_KEY: Final = re.compile(r"^gatebook exec --session \S+ --key '?([!-&(-~]{1,300}?)'? ")


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
    """Return the effect key in a command that was rewritten; empty for any other command."""
    match = _EFFECT_KEY.match(command)
    return match[1] if match else ""
