"""What a hook after a call says about its outcome. Pure.

That a call ended and how it ended are two facts. Claude Code reports a failed command by another
event, Codex without its exit code, Gemini inside a text.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hooks.coding_agents.call_intents import SHELL_TOOLS, CallIntent
from hooks.coding_agents.gemini_outputs import read_shell_end
from hooks.coding_agents.hook_events import NOT_RUN, HookEvent, read_text_field

MAX_RESULT_BYTES: Final = 196_608  # of the stored result of a call
KEPT_CHARACTERS: Final = 30_000  # of each end of a longer result
NOT_EXECUTED_CODES: Final = (126, 127)  # the shell found no program to run
_CLAUDE_EXIT: Final = re.compile(r"(?:Error: )?Exit code (\d{1,3})\b")
_CODEX_EXIT: Final = re.compile(r"(?:Exit code: |Process exited with code )(\d{1,3})\b")
_TIMED_OUT: Final = re.compile(r"\btimed out after\b|\bcommand timed out\b", re.IGNORECASE)
# Texts of Claude Code for calls that its own permissions refused.
_REFUSED: Final = re.compile(
    r"\s*(?:<tool_use_error>\s*(?:InputValidationError|Error: No such tool available)\b"
    r"|Permission to use .{1,2000}? has been denied"
    r"|Claude requested permissions to .{1,2000}?, but you haven't granted it yet"
    r"|The user doesn't want to proceed with this tool use)",
    re.DOTALL,
)
_PUSHED: Final = re.compile(r"^\s*[+*]?\s*[0-9a-f]{7,40}\.{2,3}([0-9a-f]{7,40})\s", re.MULTILINE)
_PULL_REQUEST: Final = re.compile(r"https?://\S+/(?:pull|merge_requests)/\d+")


class CallResult(NamedTuple):
    """How a call ended: an outcome, or the reason of a failed attempt."""

    outcome: str = ""  # ok | error | unknown
    reason: str = ""  # rejected | timeout | error
    result: Any = None
    reference: str = ""


def read_call_result(event: HookEvent, intent: CallIntent) -> CallResult:
    """Return how the call of a hook ended."""
    if event.name in NOT_RUN:
        words = read_text_field(event.fields, "reason") or "The client refused the call."
        return CallResult(reason="rejected", result={"detail": words})
    if event.name == "PostToolUseFailure":
        return _read_failure(event, intent)
    response = event.fields.get("tool_response")
    result = shorten_result(response)
    if event.client == "gemini":
        outcome, reason = _read_gemini_outcome(event, response)
    elif event.client == "codex":
        outcome, reason = _read_codex_outcome(event, intent, response)
    else:
        outcome, reason = _read_claude_outcome(response)
    return CallResult(outcome, reason, result, _find_reference(intent, response))


def _read_claude_outcome(response: Any) -> tuple[str, str]:
    if not isinstance(response, Mapping):
        return "ok", ""
    if response.get("interrupted") is True:
        return "", "error"  # it was cut off, so its effect is unknown
    if response.get("backgroundTaskId") or response.get("isError") is True:
        return ("error" if response.get("isError") is True else "unknown"), ""
    return "ok", ""


def _read_failure(event: HookEvent, intent: CallIntent) -> CallResult:
    error = read_text_field(event.fields, "error")
    result = shorten_result(
        {name: event.fields[name] for name in ("error", "is_interrupt") if name in event.fields}
    )
    if _REFUSED.match(error):
        return CallResult(reason="rejected", result=result)
    if event.fields.get("is_interrupt") is True:
        return CallResult(reason="error", result=result)
    if _TIMED_OUT.search(error[:500]):
        return CallResult(reason="timeout", result=result)
    match = _CLAUDE_EXIT.match(error)
    if match and int(match[1]) in NOT_EXECUTED_CODES and intent.is_simple:
        return CallResult(reason="rejected", result=result | {"exit_code": int(match[1])})
    if match:
        code = int(match[1])
        if code > 128:  # a signal ended it
            return CallResult(reason="error", result=result | {"exit_code": code})
        return CallResult("error", result=result | {"exit_code": code})
    return CallResult("error", result=result)


def _read_codex_outcome(event: HookEvent, intent: CallIntent, response: Any) -> tuple[str, str]:
    """Codex passes the bare output on. Without an exit code the outcome is unknown.

    Of a command that changes nothing outside, `ok` says only that it ended.
    """
    text = response if isinstance(response, str) else ""
    if isinstance(response, Mapping) and isinstance(response.get("exit_code"), int):
        return ("ok" if response["exit_code"] == 0 else "error"), ""
    if _TIMED_OUT.match(text):
        return "", "timeout"
    match = _CODEX_EXIT.match(text)
    if match:
        return ("ok" if int(match[1]) == 0 else "error"), ""
    if event.tool in SHELL_TOOLS[event.client]:
        return ("unknown" if intent.changes_outside else "ok"), ""
    return "ok", ""


def _read_gemini_outcome(event: HookEvent, response: Any) -> tuple[str, str]:
    """Gemini names the exit code inside its text, and only if it is not 0."""
    if not isinstance(response, Mapping):
        return "ok", ""
    if event.tool in SHELL_TOOLS[event.client]:
        end = read_shell_end("\n".join(_list_texts(response.get("llmContent"))))
        if end != ("ok", ""):
            return end
    return ("error" if response.get("error") else "ok"), ""


def shorten_result(value: Any) -> Any:
    """Return a result that fits into an entry: of a longer one the ends, its size and its hash."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    size = len(text.encode("utf-8", "replace"))
    if size <= MAX_RESULT_BYTES:
        return value
    shortened = {
        "cut": True,
        "bytes": size,
        "sha256": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(),
        "start": text[:KEPT_CHARACTERS],
        "end": text[-KEPT_CHARACTERS:],
    }
    if isinstance(value, Mapping):
        names = ("persistedOutputPath", "persistedOutputSize", "interrupted", "exit_code")
        shortened |= {name: value[name] for name in names if name in value}
    return shortened


def _find_reference(intent: CallIntent, response: Any) -> str:
    """Return the remote's name for the effect, where the output of the command contains it."""
    if not intent.command or not intent.changes_outside:
        return ""
    text = "\n".join(_list_texts(response))[:100_000]
    if intent.tool == "git.push":
        commits = _PUSHED.findall(text)
        return commits[-1] if len(set(commits)) == 1 else ""
    links = _PULL_REQUEST.findall(text) if intent.tool.startswith(("gh.", "glab.")) else []
    return links[-1][:300] if links else ""


def _list_texts(response: Any) -> list[str]:
    if isinstance(response, str):
        return [response]
    if isinstance(response, list):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in response]
        return [text for text in parts if isinstance(text, str)]
    if isinstance(response, Mapping):
        names = ("stdout", "stderr", "llmContent")
        return [response[name] for name in names if isinstance(response.get(name), str)]
    return []
