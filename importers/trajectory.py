"""The neutral trajectory model of all formats, independent of API and database."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

# Parsed JSON: str, int, float, bool, None, list or dict.
Json: TypeAlias = Any
# `refused`: the source reports that the agent's harness or a person prevented the call.
Outcome: TypeAlias = Literal["ok", "error", "unknown", "refused"]
EndStatus: TypeAlias = Literal["completed", "failed", "cancelled"]

MAX_KEY_CHARACTERS = 200
MAX_TITLE_CHARACTERS = 200
MAX_LABEL_CHARACTERS = 200
MAX_TOOL_CHARACTERS = 100
MAX_TIME_US = 2**53 - 1  # limit of the API; the year 2255

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(slots=True)
class Result:
    """The result of one call. `outcome` is as reported by the source, never a guess."""

    content: Json
    outcome: Outcome
    sequence: int
    finished_us: int | None = None


@dataclass(slots=True)
class Call:
    """One tool call. `position` counts the session's calls from 1."""

    position: int
    sequence: int
    turn: int | str  # its number, or the id of its message
    tool: str
    arguments: Json
    call_id: str | None = None
    occurred_us: int | None = None
    result: Result | None = None
    free_text: tuple[str, ...] = ()  # arguments that only describe the call
    has_unique_id: bool = False

    @property
    def is_refused(self) -> bool:
        """True if the source reports that the call was prevented."""
        return self.result is not None and self.result.outcome == "refused"


@dataclass(slots=True)
class Trajectory:
    """One session as recorded by its source.

    All data follows from the source alone. A longer version of a source has the same beginning:
    calls keep position and sequence, and session facts come from before its first call.

    With `has_unique_ids` no two calls of the session have the same id. Then facts do not depend on
    the place of a call in its file, so that files of one session may overlap.
    """

    format: str
    key: str
    parent_key: str | None = None
    title: str = ""
    branch: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    started_us: int | None = None
    ended: EndStatus | None = None
    ended_us: int | None = None
    calls: list[Call] = field(default_factory=list)
    has_unique_ids: bool = False
    _next_sequence: int = 1

    @property
    def last_sequence(self) -> int:
        return self._next_sequence - 1

    def add_call(
        self,
        tool: Json,
        arguments: Json,
        *,
        turn: int | str,
        call_id: Json = None,
        occurred_us: int | None = None,
        talk: Collection[str] = (),
    ) -> Call:
        """Append the next call. It takes two sequence numbers: planned and dispatched.

        `talk` names the arguments in which the model only describes the call.
        """
        call = Call(
            position=len(self.calls) + 1,
            sequence=self._next_sequence,
            turn=turn,
            tool=to_tool_name(tool),
            arguments=arguments,
            call_id=call_id if isinstance(call_id, str) and call_id else None,
            occurred_us=occurred_us,
            free_text=tuple(name for name in talk if name in arguments)
            if isinstance(arguments, dict)
            else (),
            has_unique_id=self.has_unique_ids,
        )
        self._next_sequence += 2
        self.calls.append(call)
        return call

    def answer(
        self, call: Call, content: Json, outcome: Outcome, finished_us: int | None = None
    ) -> None:
        """Set the result of `call`. Only the first one counts; others are repetitions."""
        if call.result is None:
            call.result = Result(content, outcome, self._next_sequence, finished_us)
            self._next_sequence += 1

    def describe(
        self, *, title: str = "", branch: Json = None, labels: dict[str, Json] | None = None
    ) -> None:
        """Fill empty session fields, but only before its first call.

        Otherwise a shorter version of the same source would give other session facts.
        """
        if self.calls:
            return
        self.title = self.title or to_title(title)
        if not self.branch and isinstance(branch, str):
            self.branch = to_printable(branch)[:MAX_LABEL_CHARACTERS]
        for name, value in (labels or {}).items():
            if (
                isinstance(value, str | int)
                and not isinstance(value, bool)
                and str(value)
                and name not in self.labels
            ):
                self.labels[name] = to_printable(str(value))[:MAX_LABEL_CHARACTERS]


class OpenCalls:
    """Finds the call of a result by call id; reused ids match in call order."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[Trajectory, Call]]] = {}

    def add(self, trajectory: Trajectory, call: Call) -> None:
        if call.call_id is not None:
            self._waiting.setdefault(call.call_id, []).append((trajectory, call))

    def knows(self, call_id: Json) -> bool:
        """Return whether a call with this id was added, with or without a result."""
        return isinstance(call_id, str) and call_id in self._waiting

    def take(
        self, call_id: Json, within: Trajectory | None = None
    ) -> tuple[Trajectory, Call] | None:
        """Remove and return the oldest open call with this id, if any; prefer `within`."""
        waiting = self._waiting.get(call_id) if isinstance(call_id, str) else None
        if not waiting:
            return None
        match = next((pair for pair in waiting if pair[0] is within), waiting[0])
        waiting.remove(match)
        return match


def build_document_key(origin: dict[str, Json] | None, natural: str, raw: Json) -> str:
    """Return the session key of a document that is one of many in a file.

    The key is the document's origin if known (`repository:path`, stable over commits), else its
    natural name with a digest of its content, so that two runs of one task are two sessions.
    """
    if origin is not None and isinstance(origin.get("path"), str) and origin["path"]:
        repository = origin.get("repo")
        name = f"{repository}:{origin['path']}" if isinstance(repository, str) else origin["path"]
        return build_session_key(name)
    return build_session_key(f"{natural}-{hash_json(raw)[:16]}" if natural else hash_json(raw))


def build_session_key(name: str) -> str:
    """Return `name` as a unique printable key of at most MAX_KEY_CHARACTERS characters."""
    key = to_printable(name)
    if key == name and 0 < len(key) <= MAX_KEY_CHARACTERS:
        return key
    return f"{key[: MAX_KEY_CHARACTERS - 17]}~{hash_json(name)[:16]}"


class DistinctKeys:
    """Ensures that documents of one file with different contents have different keys."""

    def __init__(self) -> None:
        self._contents: dict[str, str] = {}
        self._taken: set[str] = set()

    def admit(self, trajectory: Trajectory, content: Json) -> bool:
        """Give `trajectory` a unique key; return False if the document is a duplicate."""
        content_digest = hash_json(content)
        for key in (trajectory.key, build_session_key(f"{trajectory.key}~{content_digest[:16]}")):
            if self._contents.setdefault(key, content_digest) != content_digest:
                continue
            fresh = key not in self._taken
            self._taken.add(key)
            trajectory.key = key
            return fresh
        return False


def hash_json(value: Json) -> str:
    """Return the SHA-256 of a JSON value in hex, the same on every machine."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def to_printable(text: str) -> str:
    """Replace control characters and lone surrogates in a name."""
    return _SURROGATE.sub("�", _UNPRINTABLE.sub(" ", text)).strip()


def to_title(text: str) -> str:
    """Return the first MAX_TITLE_CHARACTERS characters of `text` on one line."""
    line = " ".join(to_printable(text[: MAX_TITLE_CHARACTERS * 20]).split())
    return (
        line
        if len(line) <= MAX_TITLE_CHARACTERS
        else line[: MAX_TITLE_CHARACTERS - 1].rstrip() + "…"
    )


def to_tool_name(tool: Json) -> str:
    """Return a tool's name as short printable text; `unnamed` if there is none."""
    name = to_printable(tool)[:MAX_TOOL_CHARACTERS] if isinstance(tool, str) else ""
    return name or "unnamed"


def extract_text(content: Json) -> str:
    """Return the text of a message content: a text or the text blocks of a list."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        b["text"] for b in content if isinstance(b, dict) and isinstance(b.get("text"), str)
    )


def unwrap_text_block(content: Json) -> Json:
    """Return the text of a single plain text block; other results unchanged."""
    if isinstance(content, list) and len(content) == 1:
        block = content[0]
        if isinstance(block, dict) and block.keys() == {"type", "text"} and block["type"] == "text":
            return block["text"]
    return content


def parse_arguments(sent: Json) -> Json:
    """Parse the arguments of an OpenAI-style call; keep text that is no object."""
    if not isinstance(sent, str):
        return sent
    try:
        value = json.loads(sent)
    except (ValueError, RecursionError):
        return sent
    return value if isinstance(value, dict) else sent


def parse_iso_us(moment: Json) -> int | None:
    """Parse an ISO time (default UTC) to microseconds; None if invalid."""
    if not isinstance(moment, str):
        return None
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        return None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    since = parsed - datetime(1970, 1, 1, tzinfo=UTC)
    us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return us if 0 <= us <= MAX_TIME_US else None


def seconds_to_us(seconds: Json) -> int | None:
    """Convert seconds since the epoch to microseconds; None if invalid."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 < seconds < MAX_TIME_US / 1_000_000
    ):
        return None
    return round(seconds * 1_000_000)
