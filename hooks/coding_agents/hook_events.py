"""What a hook says, in one form for all coding agents. Pure.

Claude Code and Codex name a call by `tool_use_id` and a turn by `prompt_id` or `turn_id`. Gemini
names neither: a call is its intent and an ordinal, and a delivery is its timestamp.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Client = Literal["claude-code", "codex", "gemini"]

BEFORE_CALL: Final = frozenset({"PreToolUse", "BeforeTool"})
AFTER_CALL: Final = frozenset({"PostToolUse", "PostToolUseFailure", "AfterTool"})
NOT_RUN: Final = frozenset({"PermissionDenied"})  # the client or its user refused the call
PERMISSION_REQUEST: Final = "PermissionRequest"
_LOOKS_BEFORE: Final = re.compile(r"(?:Pre|Before)[A-Za-z]*")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_PLAIN_ID: Final = re.compile(r"[\x21-\x7e]{1,150}")
MAX_TOOL_CHARACTERS: Final = 100


class HookNotUsable(Exception):
    """The hook lacks something without which it cannot be recorded; the text says what to do."""


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One hook. Texts are empty where the hook does not have them."""

    client: Client
    name: str
    fields: Mapping[str, Any]
    session_key: str
    parent_key: str = ""  # of the session that started this subagent
    call_id: str = ""
    turn: str = ""
    delivery: str = ""  # what two deliveries of one hook have in common, besides their content
    tool: str = ""
    input: Any = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the command `gatebook hook`
    fault: str = ""  # why the fields are not exactly what was sent

    @property
    def cwd(self) -> str:
        """The folder in which the client works."""
        return read_text_field(self.fields, "cwd")

    @property
    def program(self) -> str:
        """The name of the program that sends the hook, for people."""
        return to_plain_text(read_text_field(self.facts, "program"), 100) or self.client

    @property
    def occurred_us(self) -> int | None:
        """When the hook fired, as the command `gatebook hook` reports it."""
        moment = self.facts.get("occurred_us")
        if not isinstance(moment, int) or isinstance(moment, bool) or not 0 <= moment < 2**53:
            return None
        return moment

    @property
    def process(self) -> str:
        """The name of the attempt that this hook may begin: its call, and a digest of its turn."""
        moment = self.turn or self.delivery
        return f"{self.call_label}@{compute_text_digest(moment)[:12] if moment else 'unknown'}"

    @property
    def call_label(self) -> str:
        """The call's id, shortened so that `process` has at most 64 characters."""
        label = self.call_id or self.delivery or "call"
        return label if len(label) <= 48 else f"{label[:31]}~{compute_text_digest(label)[:16]}"


def build_hook_event(client: Client, fields: Mapping[str, Any], fault: str = "") -> HookEvent:
    """Return what a hook says. Raises HookNotUsable."""
    name = read_text_field(fields, "hook_event_name")
    if not name:
        raise HookNotUsable(
            "The hook has no `hook_event_name`. Send the hook's JSON as the client wrote it."
        )
    session = read_text_field(fields, "session_id")
    if not session:
        raise HookNotUsable(
            "The hook has no `session_id`. Update the client, or record its calls in another way."
        )
    agent = read_text_field(fields, "agent_id")
    facts = fields.get("gatebook")
    facts = facts if isinstance(facts, Mapping) else {}
    call_id = read_text_field(fields, "tool_use_id")
    delivery = read_text_field(facts, "delivery") or read_text_field(fields, "timestamp")
    is_call = is_before_call(name, fields) or name in AFTER_CALL | NOT_RUN
    return HookEvent(
        client=client,
        name=name,
        fields=fields,
        session_key=build_key(f"{session}/{agent}" if agent else session),
        parent_key=build_key(session) if agent else "",
        call_id=_build_call_id(call_id) if is_call and call_id else "",
        turn=_shorten(read_text_field(fields, "prompt_id") or read_text_field(fields, "turn_id")),
        delivery=_shorten(delivery),
        tool=_read_tool(fields) if is_call else "",
        input=fields.get("tool_input", {}) if is_call else {},
        facts=facts,
        fault=fault,
    )


def is_before_call(name: str, fields: Mapping[str, Any]) -> bool:
    """True if a tool call waits for the answer; also for names that newer clients may use."""
    if name in BEFORE_CALL:
        return True
    return bool(_LOOKS_BEFORE.fullmatch(name)) and "tool_name" in fields


def read_text_field(fields: Mapping[str, Any], name: str) -> str:
    """Return a field if it is a text, else an empty one."""
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def compute_text_digest(text: str) -> str:
    """Return the SHA-256 of a text as hex digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def build_key(text: str) -> str:
    """Return a session key for a client's id: the id itself unless it is long or not printable."""
    return text if _PLAIN_ID.fullmatch(text) else f"hook:{compute_text_digest(text)}"


def to_plain_text(text: str, most: int) -> str:
    """Return a text without control characters, of at most `most` characters."""
    return _CONTROL.sub(" ", text)[:most]


def _build_call_id(text: str) -> str:
    return text if _PLAIN_ID.fullmatch(text) else compute_text_digest(text)


def _shorten(text: str) -> str:
    return text if len(text) <= 200 and not _CONTROL.search(text) else compute_text_digest(text)


def _read_tool(fields: Mapping[str, Any]) -> str:
    tool = read_text_field(fields, "tool_name")
    if not tool:
        raise HookNotUsable("The hook has no `tool_name`. Update the client.")
    plain = to_plain_text(tool, len(tool))
    if len(plain) <= MAX_TOOL_CHARACTERS and plain == tool:
        return tool
    return f"{plain[: MAX_TOOL_CHARACTERS - 17]}~{compute_text_digest(tool)[:16]}"
