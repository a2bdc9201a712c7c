"""Effect keys that a program derives again after a crash.

A key consists of the tool, a digest of the arguments, and how often this process has requested
exactly that before. A program that restarts and repeats its steps derives the same keys, and
effects that happened are not repeated; a tool that is called twice on purpose gets two keys. A
program that does not restart from its beginning, such as an agent that a model drives, passes
`call_id` or `key` instead; see docs/reference/client.md.
"""

import hashlib
import json
import threading
import uuid
from collections import Counter
from collections.abc import Iterable
from typing import Any


def new_key() -> str:
    """Return a new idempotency key. Every retry of one command uses the same key."""
    return uuid.uuid4().hex


def canonical(arguments: Any) -> Any:
    """Return a copy of `arguments` as plain JSON. Raises TypeError or ValueError."""
    return json.loads(json.dumps(arguments, allow_nan=False))


def compute_call_digest(tool: str, arguments: Any, free_text: Iterable[str] = ()) -> str:
    """Return the digest of an intent; `free_text` names arguments that do not count."""
    left_out = set(free_text)
    if left_out and isinstance(arguments, dict):
        arguments = {name: value for name, value in arguments.items() if name not in left_out}
    text = json.dumps([tool, arguments], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class CallCounter:
    """Counts equal calls, so that each gets a key of its own. Safe for threads."""

    def __init__(self) -> None:
        self._given: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, counted: str) -> int:
        """Return how often `counted` was requested before, and count this request."""
        with self._lock:
            self._given[counted] += 1
            return self._given[counted] - 1

    def give_back(self, counted: str) -> None:
        """Undo the last count: the effect failed, so the next one means the same effect."""
        with self._lock:
            self._given[counted] -= 1


def effect_key(tool: str, digest: str, ordinal: int) -> str:
    """Return the key of an effect within its session."""
    return f"{tool}:{digest[:24]}:{ordinal}"
