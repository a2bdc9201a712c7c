"""The MCP server behind `gatebook mcp-proxy`: a command on pipes, or an address over HTTP.

Both deliver every message of the server as one line to `on_line`, and end with `on_end`.
"""

import base64
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO, Protocol, cast

import httpx

from gatebook_client.json_rpc import (
    Unreadable,
    is_response,
    make_error,
    parse_line,
    request_key,
)

END_WITHIN_S = 5.0
_REFUSED_STATUSES = (400, 401, 403, 404, 405, 406, 415)
SERVER_GONE, SERVER_REFUSED = -32000, -32091  # the second is of this module alone
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_NAME_FIELDS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Upstream(Protocol):
    """A connection to an MCP server."""

    def start(self, on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Begin to deliver messages."""

    def send(self, line: bytes) -> None:
        """Send one message. Raises OSError if the server is gone."""

    def close(self) -> int:
        """End the connection and return an exit code."""


class CommandUpstream:
    """A server that is a child process and speaks on its standard input and output."""

    def __init__(self, command: Sequence[str]) -> None:
        # Raises OSError if it cannot be started. Its standard error is that of this process.
        self._process = process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._input, self._output = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
        self._lock = threading.Lock()

    def start(self, on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Read the server's output in a thread."""

        def read() -> None:
            for line in self._output:
                if line.strip():
                    on_line(line)
            on_end()

        threading.Thread(target=read, name="mcp-server", daemon=True).start()

    def send(self, line: bytes) -> None:
        """Write a line to the server's input."""
        with self._lock:
            self._input.write(line if line.endswith(b"\n") else line + b"\n")
            self._input.flush()

    def close(self) -> int:
        """Close the server's input, and end it if it does not end by itself."""
        with suppress(OSError, ValueError):
            self._input.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self._process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(END_WITHIN_S)
        return 1


class HttpUpstream:
    """A server at an address, over the streamable HTTP transport."""

    def __init__(self, url: str, headers: dict[str, str], timeout_s: float) -> None:
        timeout = httpx.Timeout(10.0, read=timeout_s)
        self._url = url
        self._http = httpx.Client(timeout=timeout, headers=headers, trust_env=False)
        self._session: dict[str, str] = {}  # headers of the session
        self._on_line: Callable[[bytes], None] = lambda _line: None
        self._closed = threading.Event()

    def start(self, on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Keep where messages go. The server cannot end this connection."""
        self._on_line = on_line

    def send(self, line: bytes) -> None:
        """Send a message: requests in a thread of their own, the others in their order."""
        message = parse_line(line)
        is_request = isinstance(message, dict) and "method" in message and "id" in message
        if not is_request:
            self._post(line, None)
            if isinstance(message, dict) and message.get("method") == "notifications/initialized":
                threading.Thread(target=self._listen, daemon=True).start()
            return
        threading.Thread(target=self._post, args=(line, message), daemon=True).start()

    def _post(self, line: bytes, request: dict[str, object] | None) -> None:
        answered = False
        identity = None if request is None else request.get("id")

        def deliver(received: bytes) -> None:
            nonlocal answered
            message = parse_line(received)
            if request is not None and is_response(message):
                answered = answered or request_key(message["id"]) == request_key(identity)
                if request.get("method") == "initialize":
                    self._note_version(message)
            self._on_line(received)

        error, code = "the server did not answer the request", SERVER_GONE
        try:
            with self._http.stream(
                "POST",
                self._url,
                content=line.strip(),
                headers={
                    "Content-Type": "application/json",
                    "Accept": "application/json, text/event-stream",
                    **self._session,
                    **make_routing_headers(parse_line(line)),
                },
            ) as response:
                if "mcp-session-id" in response.headers:
                    self._session["Mcp-Session-Id"] = response.headers["mcp-session-id"]
                if response.is_success:
                    self._read_messages(response, deliver)
                else:
                    error = f"the server answered with HTTP {response.status_code}"
                    if response.status_code in _REFUSED_STATUSES:
                        code = SERVER_REFUSED
                    with suppress(Unreadable):
                        if is_response(parse_line(response.read())):
                            self._read_messages(response, deliver)
        except httpx.ConnectError as failure:
            error, code = f"the server cannot be reached ({failure})", SERVER_REFUSED
        except (httpx.HTTPError, ValueError) as failure:
            error = f"the connection failed ({failure or type(failure).__name__})"
        if request is not None and not answered:
            self._on_line(json.dumps(make_error(identity, code, error)).encode())

    def _note_version(self, message: dict[str, object]) -> None:
        result = message.get("result")
        if isinstance(result, dict) and isinstance(result.get("protocolVersion"), str):
            self._session["MCP-Protocol-Version"] = result["protocolVersion"]

    def _read_messages(self, response: httpx.Response, deliver: Callable[[bytes], None]) -> None:
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            data: list[str] = []
            for line in response.iter_lines():
                if self._closed.is_set():
                    return
                if line.startswith("data:"):
                    data.append(line[5:].removeprefix(" "))
                elif not line and data:
                    deliver("\n".join(data).replace("\n", " ").encode())
                    data = []
            return
        body = response.read()
        if body.strip():
            deliver(body.replace(b"\r", b" ").replace(b"\n", b" "))

    def _listen(self) -> None:
        """Read what the server sends on its own, if it offers that."""
        headers = {"Accept": "text/event-stream", **self._session}
        with suppress(httpx.HTTPError, ValueError):
            timeout = httpx.Timeout(10.0, read=None)
            with self._http.stream("GET", self._url, headers=headers, timeout=timeout) as response:
                if response.is_success:
                    self._read_messages(response, self._on_line)

    def close(self) -> int:
        """End the session at the server."""
        self._closed.set()
        if "Mcp-Session-Id" in self._session:
            with suppress(httpx.HTTPError):
                self._http.delete(self._url, headers=self._session, timeout=END_WITHIN_S)
        return 0


def make_routing_headers(message: object) -> dict[str, str]:
    """Return the headers that repeat parts of a request, as the protocol of 2026-07-28 requires."""
    if not isinstance(message, dict) or not isinstance(message.get("params"), dict):
        return {}
    meta = message["params"].get("_meta")
    version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    if not isinstance(version, str):
        return {}
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": str(message.get("method"))}
    name = message["params"].get(_NAME_FIELDS.get(str(message.get("method")), ""))
    if isinstance(name, str):
        headers["Mcp-Name"] = encode_header(name)
    return headers


def encode_header(value: str) -> str:
    """Return a value for a header, encoded where a header cannot hold it."""
    if re.fullmatch(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?", value) and not re.fullmatch(
        r"=\?base64\?.*\?=", value
    ):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def print_error(sentence: str) -> None:
    """Print a sentence on standard error, which MCP clients show or keep."""
    sys.stderr.write(f"gatebook: {sentence}\n")
    sys.stderr.flush()
