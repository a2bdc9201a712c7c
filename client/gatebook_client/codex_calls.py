"""Calls of Codex as its app-server describes them, in the form of the hooks of the same calls.

An approval request or an item of a thread becomes a hook, so that a call is the same effect
whichever way Gatebook learns of it.
"""

import os
import shlex
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gatebook_client.call_permissions import CallDenied, build_exit_report
from gatebook_client.types import Json

COMMAND_REQUEST: Final = "item/commandExecution/requestApproval"
PATCH_REQUEST: Final = "item/fileChange/requestApproval"
ELICITATION: Final = "mcpServer/elicitation/request"
ITEM_TYPES: Final = ("commandExecution", "fileChange", "mcpToolCall")
_SHELLS: Final = ("bash", "sh", "zsh", "dash")
_SHELL_OPTIONS: Final = ("-c", "-lc", "-ic", "-lic")
# Sources of a command that are no call of the model: its user, and input that has its own report.
_NOT_OF_MODEL: Final = ("userShell", "unifiedExecInteraction")
# What a shell word cannot contain outside quotes and still be one plain word.
_SPECIAL: Final = frozenset("|&;<>()$`*?[]{}#~!\n")


class ApprovalRequest(NamedTuple):
    """One request of Codex for an approval; `call` is a PreToolUse hook without its name."""

    call: Json
    item: str
    accept: Json
    decline: Json
    needs_person: bool = False
    is_whole: bool = True  # the end of the item is the end of the call
    is_repetition: bool = False  # the item ran, and Codex asks to run it again


def build_approval_request(
    method: str, params: Json, items: dict[tuple[str, str], Json], earlier: Sequence[str]
) -> ApprovalRequest:
    """Return what Codex asks for. Raises CallDenied for what cannot be shown to people.

    `items` are the open items of all threads, and `earlier` the calls of the same item before.
    """
    if method == ELICITATION:
        return _build_tool_request(params, items)
    item = _read_text(params, "itemId")
    place = _build_place(params)
    accept, decline = {"decision": "accept"}, {"decision": "decline"}
    if method == PATCH_REQUEST:
        if params.get("grantRoot") is not None:
            raise CallDenied("Gatebook permits single changes, never a folder for a session.")
        opened = items.get((place["session_id"], item), {})
        if not isinstance(opened.get("changes"), list) or not opened["changes"]:
            raise CallDenied("Codex did not say which files it changes.")
        call = {"tool_name": "apply_patch", "tool_input": _build_patch_input(opened)}
        return ApprovalRequest(
            place | call | {"tool_use_id": _number_call(item, earlier)}, item, accept, decline
        )
    kind = params.get("kind", "command")
    if kind not in ("command", "humanCommand", "writeStdin"):
        raise CallDenied(f"Gatebook does not know approvals of the kind {kind!r}.")
    network = params.get("networkApprovalContext")
    approval = params.get("approvalId")
    is_whole = kind != "writeStdin" and network is None and approval is None
    call = {
        "tool_name": "Bash",
        "tool_input": _build_shell_input(params),
        "tool_use_id": approval if isinstance(approval, str) else _number_call(item, earlier),
    }
    if kind == "writeStdin":
        call["tool_name"] = "write_stdin"
        call["tool_input"] = {"input": params.get("command")}
    elif network is not None:
        call["tool_name"] = "network_access"
        call["tool_input"] = {"network": network, "command": params.get("command")}
    return ApprovalRequest(
        place | {"cwd": params.get("cwd") or place["cwd"]} | call,
        item,
        accept,
        decline,
        needs_person=kind == "humanCommand",
        is_whole=is_whole,
        is_repetition=bool(earlier) and is_whole,
    )


def is_tool_elicitation(params: Any) -> bool:
    """Return whether an elicitation asks for the permission of a call, and is no question."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and "codex_approval_kind" in meta


def _build_tool_request(params: Json, items: dict[tuple[str, str], Json]) -> ApprovalRequest:
    """Return the call of an MCP tool. The request does not name its item: it is the open one."""
    meta = params["_meta"]
    if meta["codex_approval_kind"] != "mcp_tool_call":
        kind = meta["codex_approval_kind"]
        raise CallDenied(f"Gatebook does not know approvals of the kind {kind!r}.")
    place = _build_place(params)
    for (thread, identity), item in items.items():
        is_same = item.get("server") == params.get("serverName") and (
            (item.get("tool"), item.get("arguments"))
            == (meta.get("tool_name"), meta.get("tool_params"))
        )
        if thread == place["session_id"] and is_same and not item.get("asked"):
            item["asked"] = True
            call = place | _build_tool_call(item) | {"tool_use_id": identity}
            return ApprovalRequest(call, identity, {"action": "accept"}, {"action": "decline"})
    raise CallDenied("Codex asks for a call of an MCP tool that it did not begin.")


def _build_place(params: Json) -> Json:
    return {
        "session_id": _read_text(params, "threadId"),
        "turn_id": _read_text(params, "turnId"),
        "cwd": os.getcwd(),  # noqa: PTH109
    }


def _read_text(params: Json, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value:
        raise CallDenied(f"The request of Codex has no {name}.")
    return value


def _number_call(item: str, earlier: Sequence[str]) -> str:
    """Return the call id: that of the item, with a number from the second request on."""
    return f"{item}.{len(earlier) + 1}" if earlier else item


def _build_shell_input(params: Json) -> Json:
    command = params.get("command")
    if not isinstance(command, str) or not command.strip():
        if params.get("networkApprovalContext") is None:
            raise CallDenied("Codex did not say which command it runs.")
        command = ""
    built: Json = {"command": unwrap_command(command)}
    if isinstance(params.get("reason"), str):
        built["justification"] = params["reason"]
    if params.get("additionalPermissions") is not None:
        built["additional_permissions"] = params["additionalPermissions"]
    if params.get("environmentId") not in (None, "local"):
        built["environment"] = params["environmentId"]
    return built


def _build_patch_input(item: Json) -> Json:
    return {"changes": item.get("changes")}


def _build_tool_call(item: Json) -> Json:
    arguments = item.get("arguments")
    return {
        "tool_name": f"mcp__{item.get('server')}__{item.get('tool')}",
        "tool_input": {} if arguments is None else arguments,
    }


def build_item_call(thread: str, turn: str, item: Json) -> Json | None:
    """Return the call of an item that Codex ran without asking, or None if it is no call."""
    place = {"session_id": thread, "turn_id": turn, "tool_use_id": item.get("id")}
    place["cwd"] = item.get("cwd") or os.getcwd()  # noqa: PTH109
    if item["type"] == "commandExecution":
        if item.get("source") in _NOT_OF_MODEL:
            return None
        command = unwrap_command(str(item.get("command") or ""))
        return place | {"tool_name": "Bash", "tool_input": {"command": command}}
    if item["type"] == "fileChange":
        return place | {"tool_name": "apply_patch", "tool_input": _build_patch_input(item)}
    return place | _build_tool_call(item)


def build_terminal_call(params: Json, number: int) -> Json | None:
    """Return input to a running command as a call, or None if nothing was written."""
    typed = params.get("stdin")
    if not isinstance(typed, str) or not typed:
        return None
    return {
        "session_id": params.get("threadId"),
        "turn_id": params.get("turnId"),
        "tool_use_id": f"{params.get('itemId')}.stdin{number}",
        "cwd": os.getcwd(),  # noqa: PTH109
        "tool_name": "write_stdin",
        "tool_input": {"input": typed},
    }


def is_typed(request: ApprovalRequest, typed: object) -> bool:
    """Return whether a request was for this input to a running command."""
    if request.call["tool_name"] != "write_stdin":
        return False
    try:
        words = shlex.split(str(request.call["tool_input"]["input"]))
    except ValueError:
        return False
    return bool(words) and words[-1] == typed


def build_report(call: Json, item: Json, *, was_permitted: bool) -> Json | None:
    """Return the hook that reports how a call ended; None if it did not run, as it had to."""
    status = item.get("status")
    if status == "declined":
        return deny_report(call, "Codex did not run the call.") if was_permitted else None
    report = call | {"hook_event_name": "PostToolUse"}
    if isinstance(item.get("durationMs"), int):
        report["duration_ms"] = item["durationMs"]
    if item["type"] == "mcpToolCall":
        error = item.get("error")
        if error is None:
            return report | {"tool_response": item.get("result")}
        text = error.get("message") if isinstance(error, dict) else error
        return report | {"hook_event_name": "PostToolUseFailure", "error": str(text)}
    if item["type"] == "fileChange":
        if status == "completed":
            return report | {"tool_response": {"exit_code": 0, "status": status}}
        return report | {"hook_event_name": "PostToolUseFailure", "error": f"status {status}"}
    output, code = item.get("aggregatedOutput") or "", item.get("exitCode")
    if code is None and status == "failed":
        return cut_off_report(report, output or "The command was cut off.")
    return build_exit_report(report, code, output)


def has_run(item: Json) -> bool:
    """Return whether an item that has ended was executed."""
    return item.get("status") == "completed" or isinstance(item.get("exitCode"), int)


def cut_off_report(call: Json, words: str) -> Json:
    """Return the hook that says that a call ended with an unknown outcome."""
    return call | {
        "hook_event_name": "PostToolUseFailure",
        "error": words,
        "is_interrupt": True,
    }


def deny_report(call: Json, words: str) -> Json:
    """Return the hook that says that a call did not run, although it was permitted."""
    return call | {"hook_event_name": "PermissionDenied", "reason": words}


def unwrap_command(command: str) -> str:
    """Return the script of `bash -lc SCRIPT`, which Codex puts around it; else the command."""
    words = split_words(command)
    if len(words) == 3 and words[0].rpartition("/")[2] in _SHELLS and words[1] in _SHELL_OPTIONS:
        return words[2]
    return command


def split_words(command: str) -> list[str]:
    """Return the words of a command without operators and expansions; [] for any other.

    `shlex` keeps backslashes in double quotes that a shell removes.
    """
    words: list[str] = []
    word: list[str] | None = None
    position = 0
    while position < len(command):
        character = command[position]
        position += 1
        if character in " \t":
            if word is not None:
                words.append("".join(word))
            word = None
            continue
        word = [] if word is None else word
        if character == "'":
            end = command.find("'", position)
            if end < 0:
                return []
            word.append(command[position:end])
            position = end + 1
        elif character == '"':
            position = _read_quoted(command, position, word)
            if position < 0:
                return []
        elif character == "\\" and position < len(command) and command[position] != "\n":
            word.append(command[position])
            position += 1
        elif character in _SPECIAL or character == "\\":
            return []
        else:
            word.append(character)
    return words if word is None else [*words, "".join(word)]


def _read_quoted(command: str, position: int, word: list[str]) -> int:
    """Read up to the closing double quote; return the position behind it, or -1."""
    while position < len(command):
        character = command[position]
        position += 1
        if character == '"':
            return position
        if character in "$`":
            return -1
        if character == "\\" and position < len(command) and command[position] in '$`"\\':
            character = command[position]
            position += 1
        word.append(character)
    return -1
