"""`gatebook mcp-permissions`: the tool for `--permission-prompt-tool` of Claude Code.

An MCP server on standard input and output with one tool. Claude Code calls it where it would ask a
person. The call is planned as its hook plans it, waits for people, and is dispatched when it is
allowed. On any failure it is denied; if this process ends, Claude Code stops.

Standard library only: Claude Code waits for its start.
"""

import argparse
import json
import os
import re
import secrets
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gatebook_client.connections import load_connection
from gatebook_client.git_facts import read_git_facts
from gatebook_client.json_rpc import (
    INVALID_PARAMS,
    METHOD_MISSING,
    PARSE_ERROR,
    LineWriter,
    Unreadable,
    has_typed_results,
    make_error,
    make_text_result,
    parse_line,
)
from gatebook_client.plain_http import RequestFailed, parse_object, send_request

TOOL_NAME = "permission"
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
TIMEOUT_S = 20.0
LONG_POLL_S = 45
PAUSE_S = 2.0
MAX_TRANSCRIPTS = 20  # newest ones that are searched for the session of a call
TAIL_BYTES = 512 * 1024
_PROMPT = re.compile(rb'"promptId":"([0-9A-Za-z-]{1,64})"')
# This tool decides in the place of a person, so only enforced rules and people can allow.
HOOK_PATH = "/api/v1/hooks/claude-code?permitted=allow"
TOOL = {
    "name": TOOL_NAME,
    "title": "Permission of Gatebook",
    "description": "Decides whether a tool call may run. Waits until people have decided.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "tool_name": {"type": "string"},
            "input": {"type": "object"},
            "tool_use_id": {"type": "string"},
        },
        "required": ["tool_name", "input"],
    },
}

NOTHING_ENFORCED = (
    "Gatebook enforces no rules in this project, so that nobody permits this call. Nothing was"
    " executed. Activate a policy in the mode `enforce`."
)


class CallDenied(Exception):
    """The call may not run; the text is for the model."""


class PermissionServer:
    """Answers the requests of one Claude Code process."""

    def __init__(self, writer: LineWriter, options: argparse.Namespace) -> None:
        self.writer = writer
        self.options = options
        self.own_session = f"permissions-{secrets.token_hex(8)}"
        self.cancelled: dict[str, threading.Event] = {}

    def take_line(self, line: bytes) -> None:
        """Answer one message of the client."""
        try:
            message = parse_line(line)
        except Unreadable as error:
            self.writer.write_json(make_error(None, PARSE_ERROR, str(error)))
            return
        if not isinstance(message, dict) or "method" not in message:
            return
        method, identity = message["method"], message.get("id")
        parameters = message.get("params")
        parameters = parameters if isinstance(parameters, dict) else {}
        if method == "notifications/cancelled":
            event = self.cancelled.get(json.dumps(parameters.get("requestId")))
            if event is not None:
                event.set()
        if "id" not in message:
            return
        if method == "initialize":
            wanted = parameters.get("protocolVersion")
            result: dict[str, Any] = {
                "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "gatebook", "version": "0.1.0"},
            }
        elif method == "ping":
            result = {}
        elif method == "tools/list":
            result = {"tools": [TOOL]}
        elif method == "tools/call" and parameters.get("name") == TOOL_NAME:
            threading.Thread(
                target=self._answer_call, args=(identity, parameters), daemon=True
            ).start()
            return
        elif method == "tools/call":
            sentence = f"There is no tool {parameters.get('name')!r}. Use {TOOL_NAME}."
            self.writer.write_json(make_error(identity, INVALID_PARAMS, sentence))
            return
        else:
            sentence = f"This server does not know {method}."
            self.writer.write_json(make_error(identity, METHOD_MISSING, sentence))
            return
        self.writer.write_json({"jsonrpc": "2.0", "id": identity, "result": result})

    def _answer_call(self, identity: object, parameters: dict[str, Any]) -> None:
        key = json.dumps(identity)
        self.cancelled[key] = cancelled = threading.Event()
        meta = parameters.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        arguments = parameters.get("arguments")
        arguments = arguments if isinstance(arguments, dict) else {}
        steps = 0

        def report_wait(sentence: str) -> None:
            nonlocal steps
            if token is None:
                return
            steps += 1
            self.writer.write_json(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": steps, "message": sentence},
                }
            )

        try:
            answer = self._decide(arguments, cancelled, report_wait)
        except CallDenied as error:
            answer = {"behavior": "deny", "message": str(error)}
        except (RequestFailed, ValueError, OSError, KeyError, TypeError) as error:
            sentence = f"Gatebook cannot be asked ({error}). Nothing was executed."
            answer = {"behavior": "deny", "message": sentence}
        finally:
            self.cancelled.pop(key, None)
        if not cancelled.is_set():
            self.writer.write_json(
                make_text_result(identity, json.dumps(answer), is_typed=has_typed_results(meta))
            )

    def _decide(
        self, arguments: dict[str, Any], cancelled: threading.Event, report_wait: Any
    ) -> dict[str, Any]:
        """Return the answer for Claude Code, after people decided where they must."""
        tool_name, tool_input = arguments.get("tool_name"), arguments.get("input")
        if not isinstance(tool_name, str) or not isinstance(tool_input, dict):
            raise CallDenied("The request for permission names no tool or no input.")
        url, token = load_connection(self.options.connection)
        call_id = arguments.get("tool_use_id")
        call_id = call_id if isinstance(call_id, str) else f"call_{secrets.token_hex(8)}"
        folder = str(Path.cwd())
        session, prompt = find_call(call_id)
        session = self.options.session or session or self.own_session
        until = None if self.options.wait is None else time.monotonic() + self.options.wait
        facts = read_git_facts(folder)
        while True:
            hook = {
                "session_id": session,
                "cwd": folder,
                "hook_event_name": "PreToolUse",
                "tool_name": tool_name,
                "tool_input": tool_input,
                "tool_use_id": call_id,
                **({"prompt_id": prompt} if prompt else {}),
                "gatebook": facts
                | {"delivery": secrets.token_hex(16), "occurred_us": time.time_ns() // 1000},
            }
            decision, reason, changed = _ask_gatebook(url, token, hook)
            if decision == "none":
                raise CallDenied(NOTHING_ENFORCED)
            if decision == "allow":
                return {
                    "behavior": "allow",
                    "updatedInput": tool_input if changed is None else changed,
                }
            effect = _find_effect(url, token, session, call_id)
            if effect is None or effect.get("permission") != "pending":
                raise CallDenied(reason or "Gatebook refuses the call.")
            if until is not None and time.monotonic() >= until:
                raise CallDenied(reason)
            report_wait(f"{effect.get('handle')} waits for approval")
            if cancelled.is_set():
                raise CallDenied("The request was cancelled.")
            _await_ruling(url, token, effect, until)


def _ask_gatebook(
    url: str, token: str, hook: dict[str, Any]
) -> tuple[str, str, dict[str, Any] | None]:
    """Return decision, reason and changed input. Raises CallDenied for what is not understood."""
    status, body = send_request(
        "POST", url, HOOK_PATH, token=token, body=json.dumps(hook).encode(), timeout_s=TIMEOUT_S
    )
    output = parse_object(body).get("hookSpecificOutput")
    if status != 200 or not isinstance(output, dict) or output.get("hookEventName") != "PreToolUse":
        raise CallDenied(f"The answer of Gatebook is not understood (HTTP {status}).")
    decision = output.get("permissionDecision", "none")
    if decision not in ("allow", "deny", "defer", "none"):
        raise CallDenied(f"The answer of Gatebook is not understood ({decision}).")
    changed = output.get("updatedInput")
    reason = str(output.get("permissionDecisionReason") or "")
    return decision, reason, changed if isinstance(changed, dict) else None


def _find_effect(url: str, token: str, session: str, call_id: str) -> dict[str, Any] | None:
    """Return the newest effect of a call, or None."""
    query = f"session={quote(session, safe='')}&call_id={quote(call_id, safe='')}&limit=1"
    status, body = send_request(
        "GET", url, f"/api/v1/effects?{query}", token=token, timeout_s=TIMEOUT_S
    )
    items = parse_object(body).get("items")
    if status != 200 or not isinstance(items, list) or not items:
        return None
    return items[0] if isinstance(items[0], dict) else None


def _await_ruling(url: str, token: str, effect: dict[str, Any], until: float | None) -> None:
    """Wait until people rule on the gate of an effect, for one long poll at most."""
    left_s = LONG_POLL_S if until is None else max(min(LONG_POLL_S, until - time.monotonic()), 0)
    gate = effect.get("gate")
    started = time.monotonic()
    if isinstance(gate, dict):
        path = f"/api/v1/gates/{gate['id']}"
        timeout_s = left_s + TIMEOUT_S
        _, body = send_request("GET", url, path, token=token, timeout_s=TIMEOUT_S)
        current = parse_object(body)
        if current.get("status") == "pending" and not current.get("stopped"):
            path += f"?wait={int(left_s)}&since={current.get('version', 0)}"
            send_request("GET", url, path, token=token, timeout_s=timeout_s)
    if time.monotonic() - started < PAUSE_S:
        time.sleep(min(PAUSE_S, left_s))


def find_call(call_id: str) -> tuple[str, str]:
    """Return session and prompt of a call by the newest transcripts of Claude Code, or "".

    The request for permission names neither. With them it is about the same attempt as the hooks
    of the same call.
    """
    base = os.environ.get("CLAUDE_CONFIG_DIR") or str(Path.home() / ".claude")
    sought = json.dumps(call_id).encode()
    session = os.environ.get("CLAUDE_CODE_SESSION_ID", "")
    try:
        files = [
            (path.stem == session, path.stat().st_mtime, path)
            for path in (Path(base) / "projects").glob("*/*.jsonl")
        ]
        for _, _, path in sorted(files, reverse=True)[:MAX_TRANSCRIPTS]:
            with path.open("rb") as file:
                file.seek(max(path.stat().st_size - TAIL_BYTES, 0))
                before, separator, _ = file.read().rpartition(sought)
            if separator:
                prompts = _PROMPT.findall(before)
                return path.stem, prompts[-1].decode() if prompts else ""
    except OSError:
        pass
    return session, ""


def main(arguments: list[str]) -> int:
    """Serve until Claude Code closes standard input."""
    parser = argparse.ArgumentParser(
        prog="gatebook mcp-permissions", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--connection", default="", metavar="NAME", help="as in gatebook connect")
    parser.add_argument(
        "--session", default="", metavar="KEY", help="default: that of the transcript"
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=None,
        metavar="SECONDS",
        help="maximum wait for people; then the call is denied, and its request stays in the "
        "inbox; default: no limit",
    )
    options = parser.parse_args(arguments)
    server = PermissionServer(LineWriter(), options)
    try:
        for line in sys.stdin.buffer:
            if line.strip():
                server.take_line(line)
    except (KeyboardInterrupt, OSError):
        pass
    return 0
