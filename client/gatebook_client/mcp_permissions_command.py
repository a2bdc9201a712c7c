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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gatebook_client.call_permissions import CallDenied, CallPermissions
from gatebook_client.connections import load_connection
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
from gatebook_client.plain_http import RequestFailed

TOOL_NAME = "permission"
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MAX_TRANSCRIPTS = 20  # newest ones that are searched for the session of a call
TAIL_BYTES = 512 * 1024
_PROMPT = re.compile(rb'"promptId":"([0-9A-Za-z-]{1,64})"')
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
        self,
        arguments: dict[str, Any],
        cancelled: threading.Event,
        report_wait: Callable[[str], None],
    ) -> dict[str, Any]:
        """Return the answer for Claude Code, after people decided where they must."""
        tool_name, tool_input = arguments.get("tool_name"), arguments.get("input")
        if not isinstance(tool_name, str) or not isinstance(tool_input, dict):
            raise CallDenied("The request for permission names no tool or no input.")
        url, token = load_connection(self.options.connection)
        call_id = arguments.get("tool_use_id")
        call_id = call_id if isinstance(call_id, str) else f"call_{secrets.token_hex(8)}"
        session, prompt = find_call(call_id)
        call = {
            "session_id": self.options.session or session or self.own_session,
            "cwd": str(Path.cwd()),
            "tool_name": tool_name,
            "tool_input": tool_input,
            "tool_use_id": call_id,
            **({"prompt_id": prompt} if prompt else {}),
        }
        changed = CallPermissions("claude-code", url, token).await_permission(
            call, wait_s=self.options.wait, cancelled=cancelled, report_wait=report_wait
        )
        return {"behavior": "allow", "updatedInput": tool_input if changed is None else changed}


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
