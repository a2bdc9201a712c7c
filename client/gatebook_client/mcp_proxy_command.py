"""`gatebook mcp-proxy`: stand before an MCP server and hold its tool calls.

Every `tools/call` becomes an effect: planned, permitted by the policy or by people, dispatched, and
only then sent to the server. Everything else passes byte for byte. Without permission, without
Gatebook, or with a message that is not understood, the server gets no call.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import secrets
import signal
import socket
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from gatebook_client.client import Client
from gatebook_client.connections import get_state_folder, load_connection
from gatebook_client.errors import (
    GatebookError,
    HumanDecisionRequired,
    LeaseLost,
    NotYet,
    OpenWork,
    PermissionRefused,
    Rejected,
    ServerUnavailable,
    WaitTimeout,
)
from gatebook_client.json_rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_MISSING,
    PARSE_ERROR,
    LineWriter,
    Unreadable,
    check_names,
    has_typed_results,
    is_response,
    make_error,
    make_text_result,
    parse_line,
    request_key,
)
from gatebook_client.mcp_upstream import (
    SERVER_REFUSED,
    CommandUpstream,
    HttpUpstream,
    Upstream,
    print_error,
)
from gatebook_client.sessions import Session
from gatebook_client.types import ENDED, EffectResult, Json, Result

WAIT_S = 45.0  # below the 60 seconds after which many MCP clients give up
SLICE_S = 5.0  # between two signs of life to the client
LIFETIME_S = 300.0  # of a request of an undeclared tool
SLOTS = 100  # proxies of one server at the same time
CANCEL_GRACE_S = 5.0
MAX_GIVEN_UP = 1000  # requests whose late answers are dropped
_RUNNERS = ("npx", "uvx", "bunx", "python", "node", "deno", "sh", "bash")
ANNOTATIONS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint", "title")
# Codes at which the server has not begun the call.
_NOT_BEGUN = (
    *(PARSE_ERROR, INVALID_REQUEST, METHOD_MISSING, INVALID_PARAMS, SERVER_REFUSED),
    *(-32020, -32021, -32022),  # headers, capabilities or version do not fit
    -32042,  # a person must first open an address
)


class ServerGone(Exception):
    """The server ended, or its connection broke, before it answered the call."""


class PendingCall:
    """A call of the client that is not answered yet."""

    def __init__(self, identity: object, meta: Json) -> None:
        self.identity = identity
        self.progress_token = meta.get("progressToken")
        self.has_typed_results = has_typed_results(meta)
        self.cancelled = threading.Event()
        self.until = 0.0  # when the request counts as dead
        self.ended = threading.Event()  # the server answered, or is gone
        self.forwarded = False
        self.response: Json | None = None
        self.response_line = b""
        self.steps = 0


class Proxy:
    """Stands between one client and one server."""

    def __init__(
        self,
        upstream: Upstream,
        writer: LineWriter,
        sessions: "ProxySessions",
        options: argparse.Namespace,
    ) -> None:
        self.upstream = upstream
        self.writer = writer
        self.sessions = sessions
        self.options = options
        self._calls: dict[str, PendingCall] = {}
        self._listings: dict[str, str] = {}  # requests whose answers tell about the server
        self._annotations: dict[str, Json] = {}
        self._waiting_ids: dict[str, str] = {}  # call ids that wait for people, by call
        self._given_up: dict[str, None] = {}
        self._call_locks: dict[str, threading.Lock] = {}
        self._run = secrets.token_hex(8)
        self._count = 0
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._server_gone = threading.Event()

    # From the client.

    def take_client_line(self, line: bytes) -> None:
        """Forward a line of the client, or begin the call in it."""
        try:
            if b"\r" in line.rstrip(b"\r\n"):
                raise Unreadable("a carriage return is in the line, at which some servers end it")
            message = parse_line(line)
            check_names(message)
        except Unreadable as error:
            sentence = f"Gatebook did not forward a message that it cannot read: {error}"
            self.writer.write_json(make_error(None, PARSE_ERROR, sentence))
            return
        if isinstance(message, list):
            self._take_batch(message, line)
            return
        method = message.get("method") if isinstance(message, dict) else None
        if method == "tools/call":
            self._begin_call(message, line)
            return
        if method == "notifications/cancelled" and self._cancel(message):
            return
        if method == "tools/list":
            self._listings[request_key(message.get("id"))] = method
        self._forward(line, message)

    def _take_batch(self, messages: list[Any], line: bytes) -> None:
        calls = [
            message
            for message in messages
            if isinstance(message, dict) and message.get("method") == "tools/call"
        ]
        if not calls and all(isinstance(message, dict) for message in messages):
            self._forward(line, messages)
            return
        sentence = "Gatebook takes no tool call in a batch. Send each call alone."
        for message in messages:
            if isinstance(message, dict) and "id" in message and "method" in message:
                self.writer.write_json(make_error(message["id"], INVALID_REQUEST, sentence))

    def _forward(self, line: bytes, message: Any) -> None:
        try:
            self.upstream.send(line)
        except (OSError, ValueError):
            if isinstance(message, dict) and "id" in message and "method" in message:
                sentence = "The MCP server has ended."
                self.writer.write_json(make_error(message["id"], -32000, sentence))

    def _cancel(self, message: Json) -> bool:
        """Cancel a call. Return whether the server must not get the notification."""
        parameters = message.get("params")
        identity = parameters.get("requestId") if isinstance(parameters, dict) else None
        with self._lock:
            call = self._calls.get(request_key(identity))
            if call is None:
                return False
            call.cancelled.set()
            return not call.forwarded

    # From the server.

    def take_server_line(self, line: bytes) -> None:
        """Forward a line of the server; keep the answer of a call until it is reported."""
        try:
            message = parse_line(line)
        except Unreadable:
            self.writer.write(line)
            return
        for part in message if isinstance(message, list) else [message]:
            if is_response(part):
                key = request_key(part["id"])
                with self._lock:
                    call = self._calls.get(key)
                    is_late = key in self._given_up
                    self._given_up.pop(key, None)
                if is_late and call is None and not isinstance(message, list):
                    return
                if call is not None and call.forwarded and not call.ended.is_set():
                    call.response = part
                    call.response_line = (
                        json.dumps(part).encode() if isinstance(message, list) else line
                    )
                    call.ended.set()
                    if not isinstance(message, list):
                        return
                    continue
                self._read_listing(self._listings.pop(key, ""), part)
        self.writer.write(line)

    def take_server_end(self) -> None:
        """Let every call fail whose answer can no longer arrive."""
        self._server_gone.set()
        with self._lock:
            calls = list(self._calls.values())
        for call in calls:
            if call.forwarded:
                call.ended.set()

    def _read_listing(self, method: str, response: Json) -> None:
        """Keep what the server says about its tools. These are its claims."""
        result = response.get("result")
        if not isinstance(result, dict):
            return
        tools = result.get("tools") if method == "tools/list" else None
        for tool in tools if isinstance(tools, list) else []:
            annotations = tool.get("annotations") if isinstance(tool, dict) else None
            if isinstance(annotations, dict):
                self._annotations[str(tool.get("name"))] = {
                    name: annotations[name] for name in ANNOTATIONS if name in annotations
                }

    # Calls.

    def _begin_call(self, message: Json, line: bytes) -> None:
        identity, parameters = message.get("id"), message.get("params")
        if identity is None:
            return  # a call without an id gets no answer, so it is not made
        if not isinstance(parameters, dict) or not isinstance(parameters.get("name"), str):
            sentence = "A tool call names a tool."
            self.writer.write_json(make_error(identity, INVALID_PARAMS, sentence))
            return
        if "task" in parameters:
            sentence = "Gatebook does not forward calls that run as tasks. Call the tool directly."
            self.writer.write_json(make_error(identity, INVALID_PARAMS, sentence))
            return
        meta = parameters.get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        call = PendingCall(identity, meta)
        key = request_key(identity)
        with self._lock:
            if key in self._calls:
                sentence = "A request with this id is not answered yet."
                self.writer.write_json(make_error(identity, INVALID_REQUEST, sentence))
                return
            self._calls[key] = call
        thread = threading.Thread(
            target=self._run_call, args=(call, message, line, meta), name=f"call {key}", daemon=True
        )
        self._threads = [*(other for other in self._threads if other.is_alive()), thread]
        thread.start()

    def _run_call(self, call: PendingCall, message: Json, line: bytes, meta: Json) -> None:
        parameters = message["params"]
        tool, arguments = parameters["name"], parameters.get("arguments", {})
        effect_key = find_effect_key(meta)
        counted = effect_key or compute_digest(tool, arguments)
        with self._lock:
            lock = self._call_locks.setdefault(counted, threading.Lock())
        until = time.monotonic() + self.options.wait
        try:
            # Equal calls are separate effects: the second begins when the first is settled.
            while not lock.acquire(timeout=SLICE_S):
                self._report_progress(call, "waiting for an equal call")
                if call.cancelled.is_set() or time.monotonic() > until:
                    self._answer_text(call, "An equal call is not settled yet. Try again later.")
                    return
            try:
                self._perform(call, tool, arguments, line, effect_key, counted, until)
            finally:
                lock.release()
        except OSError:
            pass  # the client is gone
        finally:
            key = request_key(call.identity)
            with self._lock:
                self._calls.pop(key, None)
                if call.forwarded and not call.ended.is_set():
                    self._given_up[key] = None  # its answer may still come, and is too late
                    while len(self._given_up) > MAX_GIVEN_UP:
                        self._given_up.pop(next(iter(self._given_up)))

    def _perform(
        self,
        call: PendingCall,
        tool: str,
        arguments: Any,
        line: bytes,
        effect_key: str,
        counted: str,
        until: float,
    ) -> None:
        with self._lock:
            self._count += 1
            call_id = self._waiting_ids.get(counted) or f"{self._run}-{self._count}"
        name = self._name_tool(tool)
        claims = self._annotations.get(tool, {})
        facts: Json = {"server": self.options.name, "tool": tool}
        if claims:
            facts["claims_of_server"] = claims

        def act(remote_key: str) -> Result:
            return self._forward_call(call, line, remote_key)

        def note_dispatch(dispatch: Json, sent_at: float) -> None:
            declared_s = float(dispatch.get("request_lifetime_s") or LIFETIME_S)
            call.until = sent_at + min(declared_s, self.options.lifetime)

        while True:
            left_s = until - time.monotonic()
            try:
                session = self.sessions.open()
                performed = session.perform(
                    name,
                    arguments,
                    act,
                    wait_s=max(min(left_s, SLICE_S), 0),
                    on_dispatch=note_dispatch,
                    key=effect_key,
                    call_id="" if effect_key else call_id,
                    tool_class=find_claimed_class(claims),
                    meta={"mcp": facts},
                )
                self._waiting_ids.pop(counted, None)
                self._answer_performed(call, performed)
                return
            except WaitTimeout as error:
                if not call.cancelled.is_set() and time.monotonic() < until:
                    self._report_progress(call, f"{name} waits: {error}")
                    continue
                self._waiting_ids[counted] = call_id
                self._answer_waiting(call, name, error)
                return
            except Exception as error:
                self._waiting_ids.pop(counted, None)
                self._answer_error(call, name, error)
                return

    def _name_tool(self, tool: str) -> str:
        pattern = str(self.options.tool)
        named = pattern.replace("{server}", self.options.name)
        return named.replace("{tool}", clean_name(tool))[:100]

    def _forward_call(self, call: PendingCall, line: bytes, remote_key: str) -> Result:
        """Send the call to the server and return its result. Runs after the dispatch only."""
        if call.cancelled.is_set():
            raise Rejected("the client cancelled the call before it was sent")
        if self._server_gone.is_set():
            raise Rejected("the MCP server has ended")
        if self.options.key_meta:
            line = insert_key(line, self.options.key_meta, remote_key)
        with self._lock:
            call.forwarded = True
        try:
            self.upstream.send(line)
        except (BrokenPipeError, ValueError) as error:
            raise ServerGone("the MCP server ended while the call was sent") from error
        if not self._await_response(call):
            raise TimeoutError("the MCP server did not answer the call in time")
        response = call.response
        if response is None:
            raise ServerGone("the MCP server ended before it answered the call")
        if "error" in response:
            error_json = response["error"]
            code = error_json.get("code") if isinstance(error_json, dict) else None
            if code in _NOT_BEGUN:
                raise Rejected(f"the MCP server refused the call: {json.dumps(error_json)[:1000]}")
            return Result("unknown", result={"error": error_json})
        result = response["result"]
        if isinstance(result, dict) and result.get("resultType", "complete") != "complete":
            # The server asks for more, and the client continues by another call.
            return Result("unknown", result=result)
        failed = isinstance(result, dict) and result.get("isError") is True
        return Result("error" if failed else "ok", result=result)

    def _await_response(self, call: PendingCall) -> bool:
        """Wait for the server's answer; after a cancellation only briefly."""
        while (left_s := call.until - time.monotonic()) > 0:
            if call.ended.wait(min(left_s, 0.2)):
                return True
            if call.cancelled.is_set():
                return call.ended.wait(min(left_s, CANCEL_GRACE_S))
        return False

    # Answers to the client.

    def _report_progress(self, call: PendingCall, sentence: str) -> None:
        """Tell the client that the call is not lost, so that it does not give up."""
        if call.progress_token is None:
            return
        call.steps += 1
        # Progress must rise; the server's own progress begins at 0 or 1.
        parameters = {
            "progressToken": call.progress_token,
            "progress": call.steps / 1_000_000,
            "message": sentence,
        }
        self.writer.write_json(
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": parameters}
        )

    def _answer_performed(self, call: PendingCall, performed: EffectResult) -> None:
        if call.response_line:
            self.writer.write(call.response_line)
            return
        stored = performed.result
        if isinstance(stored, dict) and isinstance(stored.get("content"), list):
            self.writer.write_json({"jsonrpc": "2.0", "id": call.identity, "result": stored})
            return
        reference = f" ({performed.reference})" if performed.reference else ""
        self._answer_text(
            call,
            f"{performed.handle} {performed.tool} was done before{reference}, with the outcome"
            f" {performed.outcome}. It was not done again.",
            is_error=not performed.ok,
        )

    def _answer_waiting(self, call: PendingCall, tool: str, error: WaitTimeout) -> None:
        if call.cancelled.is_set():
            return
        self._answer_text(
            call,
            f"{tool} was not executed: {str(error).rstrip('.')}. {self._describe_gate(error)}"
            "Call the tool again with the same arguments to continue.",
        )

    def _describe_gate(self, error: WaitTimeout) -> str:
        """Return where people decide on the effect of an error."""
        if not isinstance(error, NotYet) or not error.gate:
            return ""
        page = error.gate_url or f"{self.sessions.url}/approvals/{error.gate}/"
        return f"People decide at {page}. "

    def _answer_error(self, call: PendingCall, tool: str, error: Exception) -> None:
        if call.response_line:
            # The call was made; only its report failed, and is sent with the next call.
            self.writer.write(call.response_line)
            if not isinstance(error, Rejected):
                print_error(f"{tool} was done. {error}")
            return
        if call.cancelled.is_set():
            return
        happened = "was not executed"
        if isinstance(error, ServerGone | TimeoutError):
            happened = "may have been executed; the outcome is unknown. Do not repeat it blindly"
        elif isinstance(error, HumanDecisionRequired):
            happened = "was not executed now, because it may have happened before"
        elif isinstance(error, ServerUnavailable | LeaseLost | PermissionRefused | Rejected):
            pass
        self._answer_text(call, f"{tool} {happened}: {error}")

    def _answer_text(self, call: PendingCall, text: str, *, is_error: bool = True) -> None:
        self.writer.write_json(
            make_text_result(
                call.identity, text, is_error=is_error, is_typed=call.has_typed_results
            )
        )

    def wait_for_calls(self, seconds: float) -> None:
        """Wait until the calls that were begun are settled."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))

    def cancel_calls(self) -> None:
        """Cancel every call, because the client is gone."""
        with self._lock:
            for call in self._calls.values():
                call.cancelled.set()


class ProxySessions:
    """The session of a proxy: a new one each time, except after a crash.

    A file names the session while the proxy lives, under a lock that ends with the process. The
    next proxy of the same server in the same folder continues a session that was left open, and
    meets its open effects.
    """

    def __init__(self, client: Client, name: str, key: str, identity: str) -> None:
        self._client = client
        self.url = client.http.url
        self._name = name
        self._key = key
        self._identity = identity
        self._session: Session | None = None
        self._slot: int | None = None  # descriptor of the locked file
        self._lock = threading.Lock()

    def open(self) -> Session:
        """Return the session, opened at the first call. Raises GatebookError."""
        with self._lock:
            if self._session is not None and self._session.status not in ENDED:
                lease = self._session.lease
                if lease is None or not lease.lost:
                    return self._session
            key, takeover = self._key, False
            if not key:
                key, takeover = self._take_slot(), True
            session = self._client.session(
                key, takeover=takeover, title=f"MCP server {self._name}"[:300]
            )
            if session.status in ENDED and not self._key:
                self._write_slot("")
                session.close()
                session = self._client.session(self._take_slot(), title=f"MCP {self._name}"[:300])
            self._session = session
            return session

    def _take_slot(self) -> str:
        """Return the key in this process's slot, a new one if it has none."""
        folder = Path(get_state_folder()) / "mcp"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = hashlib.sha256(self._identity.encode()).hexdigest()[:16]
        for number in range(SLOTS) if self._slot is None else ():
            path = folder / f"{digest}-{number}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            self._slot = descriptor
            break
        if self._slot is None:
            return self._new_key()
        stored = os.pread(self._slot, 300, 0).decode("utf-8", "replace").strip()
        if stored:
            return stored
        key = self._new_key()
        self._write_slot(key)
        return key

    def _new_key(self) -> str:
        return f"mcp-{self._name}-{secrets.token_hex(6)}"[:200]

    def _write_slot(self, key: str) -> None:
        if self._slot is not None:
            os.ftruncate(self._slot, 0)
            os.pwrite(self._slot, key.encode(), 0)
            os.fsync(self._slot)

    def close(self) -> None:
        """End the session, or leave it to the next proxy while effects of it are open."""
        session = self._session
        if session is None:
            return
        with warnings.catch_warnings(action="ignore", category=OpenWork), suppress(GatebookError):
            session.__exit__(None, None, None)
        if session.status in ENDED:
            self._write_slot("")


def clean_name(name: str) -> str:
    """Return a name as a part of a tool's name: letters, digits, -, _ and dots."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:60] or "server"


def derive_name(command: list[str], url: str) -> str:
    """Return a name for a server from how it is started, never from what it says."""
    if not command:
        return url.partition("://")[2].partition("/")[0]
    named = [word for word in command[1:] if not word.startswith("-")]
    if Path(command[0]).name.rstrip("0123456789.") in _RUNNERS and named:
        return named[0].rpartition("/")[2].rpartition("@")[0] or Path(named[0]).stem
    return Path(command[0]).stem


def find_claimed_class(annotations: Json) -> str:
    """Return the class that a server claims for its tool, or "". No decision uses it."""
    if annotations.get("readOnlyHint") is True:
        return "read_only"
    return "idempotent" if annotations.get("idempotentHint") is True else ""


def find_effect_key(meta: Json) -> str:
    """Return the idempotency key that the client put into `_meta`, or ""."""
    for name, value in meta.items():
        last = name.rpartition("/")[2].lower().replace("_", "-")
        if last in ("idempotency-key", "idempotencykey") and isinstance(value, str | int):
            return f"mcp:{value}"[:300]
    return ""


def compute_digest(tool: str, arguments: Any) -> str:
    """Return a digest of a call, for this process only."""
    return hashlib.sha256(json.dumps([tool, arguments], sort_keys=True).encode()).hexdigest()


def insert_key(line: bytes, name: str, remote_key: str) -> bytes:
    """Return the call with the key of the attempt in `_meta`."""
    message = parse_line(line)
    meta = message["params"].get("_meta")
    message["params"]["_meta"] = (meta if isinstance(meta, dict) else {}) | {name: remote_key}
    return json.dumps(message, separators=(",", ":")).encode()


def main(arguments: list[str]) -> int:
    """Run the proxy until the client closes standard input; return the server's exit code."""
    separator = arguments.index("--") if "--" in arguments else len(arguments)
    parser = _make_parser()
    options = parser.parse_args(arguments[:separator])
    command = arguments[separator + 1 :]
    if bool(command) == bool(options.url_of_server):
        parser.error("give either a COMMAND behind -- or --url")
    try:
        url, token = load_connection(
            options.connection, url=options.gatebook_url, token=options.token
        )
        # Waits are reported to the client of the proxy, every few seconds.
        client = Client(url, token, patience_s=options.patience, on_wait=lambda *_wait: None)
        headers = _parse_headers(options.header)
        upstream: Upstream = (
            CommandUpstream(command)
            if command
            else HttpUpstream(options.url_of_server, headers, options.lifetime)
        )
    except (ValueError, OSError) as error:
        print_error(f"{error}. No call is forwarded.")
        return 64
    options.name = clean_name(options.name or derive_name(command, options.url_of_server))
    identity = json.dumps([url, command, options.url_of_server, str(Path.cwd())])
    sessions = ProxySessions(
        client, f"{options.name}@{clean_name(socket.gethostname())}", options.session, identity
    )
    proxy = Proxy(upstream, LineWriter(), sessions, options)
    upstream.start(proxy.take_server_line, proxy.take_server_end)
    signal.signal(signal.SIGTERM, _raise_exit)
    try:
        for line in sys.stdin.buffer:
            if line.strip():
                proxy.take_client_line(line)
    except (KeyboardInterrupt, SystemExit, OSError):
        pass
    proxy.cancel_calls()
    proxy.wait_for_calls(CANCEL_GRACE_S + 2)
    code = upstream.close()
    proxy.wait_for_calls(CANCEL_GRACE_S)
    sessions.close()
    client.close()
    return code if code >= 0 else 128 - code


def _raise_exit(_number: int, _frame: object) -> None:
    raise SystemExit


def _parse_headers(headers: list[str]) -> dict[str, str]:
    """Return headers for the server. A value $NAME is read from the environment."""
    parsed = {}
    for header in headers:
        name, separator, value = header.partition(":")
        if not separator:
            raise ValueError(f"{header!r} is not a header. Write NAME: VALUE")
        parsed[name.strip()] = os.path.expandvars(value.strip())
    return parsed


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gatebook mcp-proxy",
        description=(__doc__ or "").partition("\n")[0],
        usage="gatebook mcp-proxy [options] (--url URL | -- COMMAND …)",
    )
    parser.add_argument("--url", dest="url_of_server", default="", help="address of the MCP server")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME: VALUE",
        help="sent to the MCP server; $NAME in the value is read from the environment",
    )
    parser.add_argument(
        "--name", default="", help="name of the server in policies; default: from its command"
    )
    parser.add_argument(
        "--tool",
        default="mcp.{server}.{tool}",
        metavar="PATTERN",
        help="name of the tool in policies and tools.yaml; default: %(default)s",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=WAIT_S,
        metavar="SECONDS",
        help="after this a call that waits for people is answered as an error, and stays in the "
        "inbox; default: %(default)s",
    )
    parser.add_argument(
        "--lifetime",
        type=float,
        default=LIFETIME_S,
        metavar="SECONDS",
        help="how long the server may take for a call; at most request_lifetime_s of its tool; "
        "default: %(default)s",
    )
    parser.add_argument(
        "--session",
        default="",
        metavar="KEY",
        help="session to work in; default: the one that a crashed proxy left open, or a new one",
    )
    parser.add_argument(
        "--key-meta",
        default="",
        metavar="NAME",
        help="send the key of the attempt to the server, under this name in _meta",
    )
    parser.add_argument("--connection", default="", metavar="NAME", help="as in gatebook connect")
    parser.add_argument(
        "--gatebook-url",
        default="",
        metavar="URL",
        help="default: GATEBOOK_URL, or that of the connection",
    )
    parser.add_argument(
        "--token", default="", help="default: GATEBOOK_TOKEN, or that of the connection"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="how long Gatebook is tried again; default: %(default)s",
    )
    return parser
