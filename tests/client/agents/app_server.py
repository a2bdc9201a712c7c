"""An app-server for tests: asks for approvals as Codex does, by a script in `script.json`.

Each line of the script is a step: `send` is written to the client, `wait` reads until a message
with these fields has come. What arrives is appended to `received.jsonl`.
"""

import json
import sys
from pathlib import Path
from typing import Any


def has_fields(message: Any, wanted: Any) -> bool:
    """Return whether a message has the wanted fields, at any depth."""
    if not isinstance(wanted, dict):
        return bool(message == wanted)
    return isinstance(message, dict) and all(
        name in message and has_fields(message[name], value) for name, value in wanted.items()
    )


def read_message() -> Any:
    line = sys.stdin.readline()
    if not line:
        raise SystemExit(0)
    with Path("received.jsonl").open("a") as file:
        file.write(line)
    return json.loads(line)


def play_script() -> None:
    """Play the script of the working folder."""
    for step in json.loads(Path("script.json").read_text()):
        if "send" in step:
            text = step["send"] if isinstance(step["send"], str) else json.dumps(step["send"])
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
        while "wait" in step:
            message = read_message()
            if message.get("method") == "turn/steer":
                sys.stdout.write(json.dumps({"id": message["id"], "result": {}}) + "\n")
                sys.stdout.flush()
            if has_fields(message, step["wait"]):
                break


if __name__ == "__main__":
    play_script()
