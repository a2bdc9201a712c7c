"""What the programs of the frameworks' tests share: the script of the model, marks, and pauses.

The working folder has `program.py` (the code of the page), `script.json` (the turns of the model)
and gets `marks` and `results.json`. `STAND` in the environment is a mark at which the process waits
to be killed: `before` or `after` the delivery, or `turn-N`, when the model is asked for turn N. `FRESH` is added
to the ids of calls, as of a model that repeats them after a crash.
"""

import importlib
import json
import os
import signal
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import gatebook_client as gatebook

signal.alarm(180)
LEASE_S = 5


def mark(word: str) -> None:
    """Write a mark, and wait there to be killed if `STAND` names it."""
    with Path("marks").open("a") as file:
        file.write(f"{word}\n")
    if os.environ.get("STAND") == word:
        signal.pause()


class Script:
    """The scripted model: its next turn is the first whose calls the conversation does not have."""

    def __init__(self, file: str = "script.json") -> None:
        self.turns: list[dict[str, Any]] = json.loads(Path(file).read_text())

    def next_turn(self, call_ids: Iterable[str], results: list[str]) -> dict[str, Any]:
        """Return the next turn, and note the results that the model has got."""
        Path("results.json").write_text(json.dumps(results))
        seen = list(call_ids)
        number = next(
            number
            for number, turn in enumerate(self.turns)
            if "text" in turn
            or not any(identity.startswith(turn["calls"][0]["id"]) for identity in seen)
        )
        mark(f"turn-{number}")
        turn = self.turns[number]
        fresh = os.environ.get("FRESH", "")
        calls = [{**call, "id": call["id"] + fresh} for call in turn.get("calls", [])]
        return {**turn, "calls": calls}


def load_module() -> Any:
    """Load the program of the page as it is."""
    sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module("program")


def load_program() -> Any:
    """Load the program of the page, with a short lease and marks around each delivery."""
    for name in ("session", "async_session"):
        setattr(gatebook, name, partial(getattr(gatebook, name), ttl_s=LEASE_S))
    program = load_module()
    deliver = program.deliver

    def deliver_marked(*what: str) -> None:
        mark("before")
        deliver(*what)
        mark("after")

    program.deliver = deliver_marked
    return program


def report(output: object) -> None:
    """Print what the program returned."""
    sys.stdout.write(f"{output}\n")
