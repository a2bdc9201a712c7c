"""`gatebook codex-approvals`: answer the approval requests of `codex app-server`.

Stands between a client of the app-server and the app-server, on standard input and output. What
Codex asks to run is planned in Gatebook, waits for people, and is dispatched when it is accepted.
Everything else passes byte for byte. Without permission, without Gatebook, or with a message that
is not understood, Codex gets a decline.

An approval request or an item of a thread becomes a hook of the same call, so that a call is the
same effect whichever way Gatebook learns of it.
"""

import argparse
import json
import os
import secrets
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from gatebook_client.call_permissions import CallDenied, CallPermissions, build_exit_report
from gatebook_client.connections import NAME_ENV_NAME, load_connection
from gatebook_client.hook_reports import HookReports
from gatebook_client.json_rpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    LineWriter,
    Unreadable,
    is_response,
    make_error,
    parse_line,
    request_key,
)
from gatebook_client.mcp_upstream import CommandUpstream, Upstream, print_error
from gatebook_client.plain_http import RequestFailed
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


REPORTS_WITHIN_S: Final = 20.0
STEER_WITHIN_S: Final = 2.0
MAX_ITEMS: Final = 2_000  # open items that are kept
MAX_TEXT: Final = 4_000  # characters of words for the model
ASKS_ALWAYS: Final = "untrusted"  # Codex asks for all but commands that it knows to only read
# Newer versions refuse `untrusted` in the configuration; where a thread begins, they take it.
DEFAULT_COMMAND: Final = ("codex", "app-server", "-c", 'approvals_reviewer="user"')
_BEGINNINGS: Final = ("thread/start", "thread/resume", "thread/fork", "turn/start")
_POLICY_FIELDS: Final = {"approvalPolicy": ASKS_ALWAYS, "approvalsReviewer": "user"}
# Notifications without which the outcome of a call cannot be recorded.
_NEEDED: Final = frozenset(
    {
        *("item/started", "item/completed", "item/fileChange/patchUpdated", "turn/started"),
        *("serverRequest/resolved", "thread/started", "item/commandExecution/terminalInteraction"),
    }
)
# Requests that Gatebook cannot hold: what they grant has no single call.
_DECLINED: Final[dict[str, Json]] = {
    "item/permissions/requestApproval": {"permissions": {}, "scope": "turn"},
    "execCommandApproval": {"decision": "denied"},
    "applyPatchApproval": {"decision": "denied"},
}


class OpenItem:
    """The requests of one item of a thread: calls that were asked for and that were accepted."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.accepted: list[ApprovalRequest] = []


class CodexProxy:
    """Stands between one client and one app-server."""

    def __init__(
        self,
        upstream: Upstream,
        writer: LineWriter,
        permissions: CallPermissions,
        options: argparse.Namespace,
    ) -> None:
        self.upstream = upstream
        self.writer = writer
        self.permissions = permissions
        self.options = options
        name = options.connection or os.environ.get(NAME_ENV_NAME, "")
        self.reports = HookReports(
            *("codex", permissions.url, permissions.token, name),
            on_answer=self._take_report_answer,
        )
        self._items: dict[tuple[str, str], Json] = {}
        self._requests: dict[tuple[str, str], OpenItem] = {}
        self._pending: dict[str, threading.Event] = {}  # requests of Codex that wait
        self._forwarded: set[str] = set()  # requests of Codex that the client answers
        self._own: dict[str, threading.Event] = {}  # requests of this proxy
        self._own_prefix = f"gatebook-{secrets.token_hex(8)}-"
        self._own_count = 0
        self._resuming: set[str] = set()  # requests of the client that continue a thread
        self._resumed: set[str] = set()  # threads whose model does not know what happened
        self._parents: dict[str, str] = {}  # of the threads of subagents
        self._opted_out: set[str] = set()
        self._typed = 0
        self._lock = threading.Lock()
        self.ended = threading.Event()  # Codex ended

    # From the client.

    def take_client_line(self, line: bytes) -> None:
        """Forward a line of the client, with the policy under which Codex asks."""
        try:
            message = parse_line(line)
        except Unreadable as error:
            sentence = f"Gatebook did not forward a message that it cannot read: {error}"
            self.writer.write_json(make_error(None, PARSE_ERROR, sentence))
            return
        if not isinstance(message, dict):
            sentence = "Gatebook forwards one message per line."
            self.writer.write_json(make_error(None, INVALID_REQUEST, sentence))
            return
        if "method" not in message:
            self._forward_answer(message, line)
            return
        identity = message.get("id")
        if isinstance(identity, str) and identity.startswith(self._own_prefix):
            sentence = "This id is in use. Choose another one."
            self.writer.write_json(make_error(identity, INVALID_REQUEST, sentence))
            return
        if message["method"] in ("thread/resume", "thread/fork") and "id" in message:
            self._resuming.add(request_key(identity))
        changed = not self.options.keep_policy and enforce_policy(message)
        changed = self._keep_notifications(message) or changed
        self._forward(json.dumps(message).encode() if changed else line, message)

    def _forward_answer(self, message: Json, line: bytes) -> None:
        """Forward an answer to a request that the client has got; no other one."""
        key = request_key(message.get("id"))
        with self._lock:
            is_expected = key in self._forwarded
            self._forwarded.discard(key)
        if is_expected:
            self._forward(line, message)
        else:
            print_error("an answer of the client to a request of Codex was not forwarded")

    def _keep_notifications(self, message: Json) -> bool:
        """Leave the needed notifications on; return whether the message was changed."""
        if message["method"] != "initialize" or not isinstance(message.get("params"), dict):
            return False
        capabilities = message["params"].get("capabilities")
        names = capabilities.get("optOutNotificationMethods") if capabilities else None
        if not isinstance(names, list) or not _NEEDED.intersection(map(str, names)):
            return False
        self._opted_out = set(_NEEDED.intersection(map(str, names)))
        capabilities["optOutNotificationMethods"] = [
            name for name in names if name not in self._opted_out
        ]
        return True

    def _forward(self, line: bytes, message: Json) -> None:
        try:
            self.upstream.send(line)
        except (OSError, ValueError):
            if "id" in message and "method" in message:
                error = make_error(message["id"], -32000, "Codex has ended.")
                self.writer.write_json(error)

    # From Codex.

    def take_server_line(self, line: bytes) -> None:
        """Forward a line of Codex, answer it, or keep what it says about a call."""
        try:
            message = parse_line(line)
            if not isinstance(message, dict):
                raise Unreadable("it is no object")
        except Unreadable as error:
            print_error(f"a message of Codex was not forwarded, because it is unreadable: {error}")
            return
        if "method" in message and "id" in message:
            self._take_request(message, line)
            return
        if "method" not in message:
            if self._take_response(message):
                return
        else:
            try:
                self._take_notification(message)
            except (AttributeError, KeyError, TypeError, CallDenied) as error:
                print_error(f"{message['method']} is not understood: {error!r}")
            if message["method"] in self._opted_out:
                return
        self.writer.write(line)

    def take_server_end(self) -> None:
        """Stop waiting: Codex runs nothing any more."""
        self.ended.set()
        with self._lock:
            for event in (*self._pending.values(), *self._own.values()):
                event.set()

    def _take_request(self, message: Json, line: bytes) -> None:
        method, identity = message["method"], message["id"]
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        is_call = method in (COMMAND_REQUEST, PATCH_REQUEST) or (
            method == ELICITATION and is_tool_elicitation(params)
        )
        if is_call:
            cancelled = threading.Event()
            with self._lock:
                self._pending[request_key(identity)] = cancelled
            threading.Thread(
                target=self._answer_request,
                args=(identity, method, params, cancelled),
                name=f"approval {identity}",
                daemon=True,
            ).start()
        elif method in _DECLINED:
            self._answer(identity, _DECLINED[method])
            self._warn(params.get("threadId"), f"Gatebook permits single calls, no {method}.")
        elif "approv" in str(method).lower():
            sentence = f"Gatebook does not know {method}. Nothing is approved."
            with suppress(OSError, ValueError):
                self.upstream.send(
                    json.dumps(make_error(identity, INVALID_REQUEST, sentence)).encode()
                )
            self._warn(params.get("threadId"), sentence)
        else:
            with self._lock:
                self._forwarded.add(request_key(identity))
            self.writer.write(line)

    def _take_response(self, message: Json) -> bool:
        """Keep an answer to this proxy; return whether the client must not get it."""
        key = request_key(message.get("id"))
        with self._lock:
            own = self._own.pop(key, None)
        if own is not None:
            own.set()
            return True
        if key in self._resuming:
            self._resuming.discard(key)
            result = message.get("result") if is_response(message) else None
            thread = result.get("thread") if isinstance(result, dict) else None
            if isinstance(thread, dict):
                self._resumed.add(str(thread.get("id")))
        return False

    def _take_notification(self, message: Json) -> None:
        method, params = message["method"], message.get("params") or {}
        if method == "serverRequest/resolved":
            with self._lock:
                event = self._pending.get(request_key(params["requestId"]))
            if event is not None:
                event.set()
        elif method == "thread/started":
            parent = params["thread"].get("parentThreadId")
            if isinstance(parent, str):
                self._parents[str(params["thread"]["id"])] = parent
        elif method == "turn/started" and params["threadId"] in self._resumed:
            self._resumed.discard(params["threadId"])
            arguments = (params["threadId"], params["turn"]["id"])
            threading.Thread(target=self._describe_past, args=arguments, daemon=True).start()
        elif method == "item/started" and params["item"]["type"] in ITEM_TYPES:
            with self._lock:
                self._items[params["threadId"], params["item"]["id"]] = params["item"]
                while len(self._items) > MAX_ITEMS:
                    self._items.pop(next(iter(self._items)))
        elif method == "item/fileChange/patchUpdated":
            item = self._items.get((params["threadId"], params["itemId"]))
            if item is not None:
                item["changes"] = params["changes"]
        elif method == "item/commandExecution/terminalInteraction":
            self._report_typing(params)
        elif method == "item/completed" and params["item"]["type"] in ITEM_TYPES:
            self._report_item(params["threadId"], params["turnId"], params["item"])

    def _report_typing(self, params: Json) -> None:
        """Report input to a running command: the end of its call, or a call without permission."""
        ended: Json = {"tool_response": {}, "hook_event_name": "PostToolUse"}
        with self._lock:
            opened = self._requests.get((params["threadId"], params["itemId"]))
            accepted = [] if opened is None else opened.accepted
            request = next((item for item in accepted if is_typed(item, params["stdin"])), None)
            if request is not None:
                accepted.remove(request)
        if request is not None:
            self.reports.add(request.call | ended)
            return
        self._typed += 1
        call = build_terminal_call(params, self._typed)
        if call is not None:
            self.reports.add(self._name_session(call | ended))

    def _report_item(self, thread: str, turn: str, item: Json) -> None:
        """Report how the calls of an item ended."""
        place = (thread, item["id"])
        with self._lock:
            self._items.pop(place, None)
            opened = self._requests.pop(place, None)
        if opened is not None and not opened.accepted and not has_run(item):
            return  # it was declined, or withdrawn
        if opened is None or not opened.accepted:  # it ran without permission
            call = build_item_call(thread, turn, item)
            report = None if call is None else build_report(call, item, was_permitted=False)
            if report is not None:
                self.reports.add(self._name_session(report))
            return
        for request in opened.accepted:
            # Parts of a command, and hosts that it may reach, have no exit code of their own.
            is_whole = request.is_whole or item.get("status") == "declined"
            ended = item if is_whole else item | {"exitCode": None, "status": "completed"}
            report = build_report(request.call, ended, was_permitted=True)
            if report is not None:
                self.reports.add(report)

    # Approvals.

    def _answer_request(
        self, identity: object, method: str, params: Json, cancelled: threading.Event
    ) -> None:
        """Answer one request for an approval. Whatever goes wrong, it is declined."""
        decline: Json = {"action" if method == ELICITATION else "decision": "decline"}
        words = ""
        try:
            request = self._open_request(method, params)
            self._decide(identity, request, cancelled)
            return
        except CallDenied as denial:
            words = str(denial)
        except (RequestFailed, ValueError, OSError) as error:
            words = f"Gatebook cannot be asked ({error}). Nothing was executed."
        except Exception as error:
            words = f"The approval failed ({error!r}). Nothing was executed."
        finally:
            with self._lock:
                self._pending.pop(request_key(identity), None)
        if cancelled.is_set():
            return
        self._warn(params.get("threadId"), words)
        self._write_to_model(params.get("threadId"), params.get("turnId"), words)
        self._answer(identity, decline)

    def _open_request(self, method: str, params: Json) -> ApprovalRequest:
        """Return what Codex asks for, and end the run that the request repeats."""
        place = (str(params.get("threadId")), str(params.get("itemId")))
        with self._lock:
            opened = self._requests.get(place)
            earlier = opened.calls if opened else []
            request = build_approval_request(method, params, self._items, earlier)
            opened = self._requests.setdefault((place[0], request.item), OpenItem())
            opened.calls.append(request.call["tool_use_id"])
            ended = opened.accepted if request.is_repetition else []
            if request.is_repetition:
                opened.accepted = []
        for repeated in ended:
            words = "Codex asks to run the call again, and did not report how it ended."
            self.reports.add(cut_off_report(repeated.call, words))
        return request._replace(call=self._name_session(request.call))

    def _name_session(self, call: Json) -> Json:
        """Return a hook whose session is that of the thread: a child, for a subagent."""
        thread = call["session_id"]
        parent = self._parents.get(str(thread))
        return call if parent is None else call | {"session_id": parent, "agent_id": thread}

    def _decide(
        self, identity: object, request: ApprovalRequest, cancelled: threading.Event
    ) -> None:
        """Accept a request that Gatebook permits. Raises for any other."""
        call = request.call
        thread = call.get("agent_id") or call["session_id"]
        shown: list[str] = []

        def report_wait(sentence: str) -> None:
            if sentence not in shown:
                shown.append(sentence)
                self._warn(thread, f"Gatebook: {sentence}")

        # What ran before is settled first: it may be the same call.
        if not self.reports.wait(REPORTS_WITHIN_S):
            raise CallDenied("Gatebook does not take reports now. Nothing was executed.")
        try:
            changed = self.permissions.await_permission(
                call,
                wait_s=self.options.wait,
                needs_person=request.needs_person,
                cancelled=cancelled,
                report_wait=report_wait,
            )
        except RequestFailed as error:
            if error.sent:  # it may have been permitted, and the answer got lost
                self.reports.add(deny_report(call, f"declined: Gatebook did not answer ({error})"))
            raise
        words = ""
        if cancelled.is_set() or self.ended.is_set():
            words = "Codex withdrew its request before the answer."
        elif changed is not None:
            words = "Codex cannot run another command than the one that it asked for."
        if words:
            self.reports.add(deny_report(call, words))
            raise CallDenied(words)
        place = (str(thread), request.item)
        with self._lock:
            self._requests.setdefault(place, OpenItem()).accepted.append(request)
        if not self._answer(identity, request.accept):
            with self._lock:
                self._requests.pop(place, None)
            self.reports.add(deny_report(call, "Codex ended before it got the answer."))

    def _answer(self, identity: object, result: Json) -> bool:
        """Answer a request of Codex; return whether it could be sent."""
        try:
            self.upstream.send(json.dumps({"id": identity, "result": result}).encode())
        except (OSError, ValueError):
            return False
        return True

    # Words for people and for the model.

    def _warn(self, thread: object, sentence: str) -> None:
        """Show a sentence to the user of the client."""
        message = {"method": "warning", "params": {"threadId": thread, "message": sentence}}
        with suppress(OSError):
            self.writer.write_json(message)

    def _write_to_model(self, thread: object, turn: object, words: str) -> None:
        """Add words to the turn: a decline has none of its own."""
        if self.ended.is_set() or not words:
            return
        answered = threading.Event()
        with self._lock:
            self._own_count += 1
            identity = f"{self._own_prefix}{self._own_count}"
            self._own[request_key(identity)] = answered
        params = {
            "threadId": thread,
            "expectedTurnId": turn,
            "input": [{"type": "text", "text": words[:MAX_TEXT]}],
        }
        with suppress(OSError, ValueError):
            request = {"id": identity, "method": "turn/steer", "params": params}
            self.upstream.send(json.dumps(request).encode())
            answered.wait(STEER_WITHIN_S)

    def _describe_past(self, thread: str, turn: str) -> None:
        """Tell the model of a continued thread which of its calls have no result."""
        hook = {"hook_event_name": "SessionStart", "session_id": thread, "source": "resume"}
        try:
            answer = self.permissions.send_hook(hook | {"turn_id": turn})
        except (RequestFailed, ValueError, CallDenied) as error:
            print_error(f"Gatebook cannot be asked about earlier calls: {error}")
            return
        output = answer.get("hookSpecificOutput")
        context = output.get("additionalContext") if isinstance(output, dict) else None
        if isinstance(context, str) and context:
            self._warn(thread, context[:MAX_TEXT])
            self._write_to_model(thread, turn, context)

    def _take_report_answer(self, report: Json, answer: Json) -> None:
        """Show what Gatebook says about a report, such as a call without permission."""
        sentence = answer.get("systemMessage")
        if isinstance(sentence, str) and sentence:
            self._warn(report.get("agent_id") or report["session_id"], sentence)

    def close(self) -> int:
        """End Codex, send what it reported, and return its exit code."""
        with self._lock:
            for event in self._pending.values():
                event.set()
        code = self.upstream.close()
        self.ended.wait(1)
        if not self.reports.wait(REPORTS_WITHIN_S):
            print_error("some results were not reported; the effects stay without an outcome")
        return code


def enforce_policy(message: Json) -> bool:
    """Set the policy under which Codex asks; return whether the message was changed."""
    params = message.get("params")
    if not isinstance(params, dict):
        if message["method"] != "thread/start":
            return False
        params = message["params"] = {}
    named = [name for name in _POLICY_FIELDS if params.get(name) is not None]
    if message["method"] not in _BEGINNINGS and not named:
        return False
    before = json.dumps(params)
    params.update(_POLICY_FIELDS)
    config = params.get("config")
    if isinstance(config, dict):
        for name in ("approval_policy", "approvals_reviewer"):
            config.pop(name, None)
    return json.dumps(params) != before


def main(arguments: list[str]) -> int:
    """Run the proxy until the client closes standard input; return Codex's exit code."""
    separator = arguments.index("--") if "--" in arguments else len(arguments)
    options = _make_parser().parse_args(arguments[:separator])
    command = arguments[separator + 1 :] or list(DEFAULT_COMMAND)
    if not arguments[separator + 1 :] and options.keep_policy:
        command = command[:2]
    try:
        url, token = load_connection(options.connection)
        upstream = CommandUpstream(command)
    except (ValueError, OSError) as error:
        print_error(f"{error}. Codex was not started.")
        return 64
    proxy = CodexProxy(upstream, LineWriter(), CallPermissions("codex", url, token), options)
    upstream.start(guard_lines(proxy.take_server_line), proxy.take_server_end)
    signal.signal(signal.SIGTERM, _raise_exit)
    try:
        for line in sys.stdin.buffer:
            if line.strip():
                proxy.take_client_line(line)
    except (KeyboardInterrupt, SystemExit, OSError):
        pass
    code = proxy.close()
    return code if code >= 0 else 128 - code


def guard_lines(take: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return a reader of lines that goes on after a line that it cannot handle."""

    def take_guarded(line: bytes) -> None:
        try:
            take(line)
        except Exception as error:  # Codex waits for an answer, which is no permission
            print_error(f"a message of Codex could not be handled: {error!r}")

    return take_guarded


def _raise_exit(_number: int, _frame: Any) -> None:
    raise SystemExit


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gatebook codex-approvals",
        description=(__doc__ or "").partition("\n")[0],
        usage="gatebook codex-approvals [options] [-- COMMAND …]",
    )
    parser.add_argument("--connection", default="", metavar="NAME", help="as in gatebook connect")
    parser.add_argument(
        "--wait",
        type=float,
        default=None,
        metavar="SECONDS",
        help="maximum wait for people; then the call is declined, and its request stays in the "
        "inbox; default: no limit",
    )
    parser.add_argument(
        "--keep-policy",
        action="store_true",
        help="leave approvalPolicy as client and configuration set it; calls that Codex does not"
        " ask for are not held",
    )
    return parser
