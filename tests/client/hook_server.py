"""A server that answers hooks as a test wants, and keeps what it got."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ALLOW = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}


@dataclass
class HookServer:
    """What it answers, and the requests so far: path, token and body."""

    url: str = ""
    status: int = 200
    answer: bytes = json.dumps(ALLOW).encode()
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    hold: threading.Event | None = None  # no answer before it is set
    hang_up: bool = False
    only_event: str = ""  # other events get an empty object

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.requests]


@contextmanager
def serve_hooks() -> Iterator[HookServer]:
    server = HookServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.requests.append((self.path, self.headers.get("Authorization", ""), body))
            if server.hold is not None:
                server.hold.wait(60)
            if server.hang_up:
                self.close_connection = True
                return
            status, answer = server.status, server.answer
            if server.only_event and json.loads(body)["hook_event_name"] != server.only_event:
                status, answer = 200, b"{}"
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    server.url = f"http://127.0.0.1:{httpd.server_address[1]}"
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        if server.hold is not None:
            server.hold.set()
        httpd.shutdown()
        httpd.server_close()
        thread.join()
