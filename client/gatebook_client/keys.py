"""Names of effects that a program finds again after a crash.

A name is made of the tool, its arguments and how often this session's program has asked for just that before. A
program that is started again and repeats its steps therefore meets its own effects, and what has happened is not done
again; a tool that is called twice on purpose gets two. Whoever does not repeat the program from its beginning, as an
agent does that a model drives, says `call_id` or `key` instead; see docs/client.md.
"""

import hashlib
import json
import threading
import uuid
from collections import Counter
from collections.abc import Iterable
from typing import Any


def new_key() -> str:
    """A key for one command: the same for every try to get its answer, and for nothing else."""
    return uuid.uuid4().hex


def canonical(arguments: Any) -> Any:
    """A copy of `arguments` as plain JSON, which nobody changes any more. Raises TypeError or ValueError."""
    return json.loads(json.dumps(arguments, allow_nan=False))


def digest_of(tool: str, arguments: Any, free_text: Iterable[str] = ()) -> str:
    """The intent, as this client tells intents apart; `free_text` names arguments that do not count."""
    left_out = set(free_text)
    if left_out and isinstance(arguments, dict):
        arguments = {name: value for name, value in arguments.items() if name not in left_out}
    text = json.dumps([tool, arguments], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Names:
    """Gives the next name of an intent, and takes one back whose effect did not happen."""

    def __init__(self) -> None:
        self._given: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, counted: str) -> int:
        """How often `counted` was asked for before."""
        with self._lock:
            self._given[counted] += 1
            return self._given[counted] - 1

    def give_back(self, counted: str) -> None:
        """The one just asked for ended without success, so to ask for it again means the same effect."""
        with self._lock:
            self._given[counted] -= 1


def effect_key(tool: str, digest: str, ordinal: int) -> str:
    """The name of an effect within its session."""
    return f"{tool}:{digest[:24]}:{ordinal}"
