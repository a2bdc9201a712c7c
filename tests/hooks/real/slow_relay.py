"""A relay before Gatebook that delays hooks before calls, as a slow network does."""

import json
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SlowRelay:
    """Passes hooks on at once, and answers those before calls `delay_s` later."""

    def __init__(self, target: str, delay_s: float) -> None:
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {
                    "Authorization": self.headers.get("Authorization") or "",
                    "Content-Type": "application/json",
                }
                request = urllib.request.Request(target + self.path, body, headers)
                with urllib.request.urlopen(request, timeout=60) as response:
                    answer = response.read()
                event = json.loads(body)["hook_event_name"]
                relay.answers.append((event, json.loads(answer)))
                if event in ("PreToolUse", "BeforeTool"):
                    time.sleep(relay.delay_s)
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_words: Any) -> None:
                pass

        self.delay_s = delay_s
        self.answers: list[tuple[str, dict[str, Any]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> "SlowRelay":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"
