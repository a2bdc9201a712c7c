"""Model servers that play a script, so that the real coding agents run offline.

A script is a list of steps. Each step is what the model answers next: a text, or tool calls. The
step follows from the conversation that the client sends, not from a counter: a client that was
killed and dropped a call gets the same step again, under new ids, as from a real model.

`ScriptedModel` speaks Anthropic's Messages API and OpenAI's Responses API, each as a stream.
"""

import itertools
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool that the model asks for."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One answer of the model."""

    text: str = ""
    calls: Sequence[ToolCall] = ()


@dataclass
class ScriptedModel:
    """A model server on a loopback port, which plays `steps`. Use it as a context manager."""

    steps: Sequence[Step]
    requests: list[dict[str, Any]] = field(default_factory=list)
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __enter__(self) -> "ScriptedModel":
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        """The base URL of the server."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def make_id(self, prefix: str) -> str:
        """Return an id that no earlier answer has."""
        return f"{prefix}_{next(self._ids):08d}"

    def choose_step(self, answered: int) -> Step:
        """Return the step after `answered` answers of the model."""
        return self.steps[answered] if answered < len(self.steps) else Step("done")

    def answer_messages(self, request: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of Anthropic's Messages API."""
        answered = sum(_is_answer(message) for message in request["messages"])
        step = self.choose_step(answered) if request.get("tools") else Step("ok")
        message = {
            "id": self.make_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": request.get("model", "scripted"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 1},
        }
        yield "message_start", {"message": message}
        blocks: list[tuple[dict[str, Any], dict[str, Any]]] = []
        if step.text:
            delta = {"type": "text_delta", "text": step.text}
            blocks.append(({"type": "text", "text": ""}, delta))
        for call in step.calls:
            block = {"type": "tool_use", "id": self.make_id("toolu"), "name": call.name}
            arguments = json.dumps(call.arguments)
            delta = {"type": "input_json_delta", "partial_json": arguments}
            blocks.append(({**block, "input": {}}, delta))
        for index, (block, delta) in enumerate(blocks):
            yield "content_block_start", {"index": index, "content_block": block}
            yield "content_block_delta", {"index": index, "delta": delta}
            yield "content_block_stop", {"index": index}
        reason = "tool_use" if step.calls else "end_turn"
        yield (
            "message_delta",
            {
                "delta": {"stop_reason": reason, "stop_sequence": None},
                "usage": {"output_tokens": 5},
            },
        )
        yield "message_stop", {}

    def answer_responses(self, request: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of OpenAI's Responses API."""
        items = request.get("input") or []
        kinds = ("function_call", "custom_tool_call", "local_shell_call")
        answered = 0
        previous = ""
        for item in items:
            kind = item.get("type", "message")
            is_answer = kind in kinds or (kind == "message" and item.get("role") == "assistant")
            if is_answer and previous != "answer":
                answered += 1
            previous = "answer" if is_answer else kind
        step = self.choose_step(answered)
        response: dict[str, Any] = {"id": self.make_id("resp"), "object": "response"}
        yield "response.created", {"response": {**response, "status": "in_progress"}}
        output: list[dict[str, Any]] = []
        for call in step.calls:
            output.append(
                {
                    "type": "function_call",
                    "id": self.make_id("fc"),
                    "call_id": self.make_id("call"),
                    "name": call.name,
                    "arguments": json.dumps(call.arguments),
                    "status": "completed",
                }
            )
        if step.text or not output:
            content = [{"type": "output_text", "text": step.text or "done", "annotations": []}]
            output.append(
                {
                    "type": "message",
                    "id": self.make_id("msg"),
                    "role": "assistant",
                    "status": "completed",
                    "content": content,
                }
            )
        for index, item in enumerate(output):
            yield "response.output_item.added", {"output_index": index, "item": item}
            yield "response.output_item.done", {"output_index": index, "item": item}
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        done = {**response, "status": "completed", "output": output, "usage": usage}
        yield "response.completed", {"response": done}


def _is_answer(message: dict[str, Any]) -> bool:
    """True for an answer of the model; Claude Code puts a text of its own after a crash."""
    return message["role"] == "assistant" and "No response requested." not in str(
        message["content"]
    )


def _make_handler(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = self._read_request()
            path = self.path.partition("?")[0]
            if path.endswith("/count_tokens"):
                self._send("application/json", json.dumps({"input_tokens": 10}).encode())
                return
            model.requests.append(request)
            if path.endswith("/responses"):
                events = list(model.answer_responses(request))
            elif path.endswith("/messages"):
                events = list(model.answer_messages(request))
            else:
                self._send("application/json", b"{}")
                return
            lines = [
                f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"
                for name, data in events
            ]
            self._send("text/event-stream", "".join(lines).encode())

        def do_GET(self) -> None:
            self._send("application/json", b'{"data":[],"models":[]}')

        def do_HEAD(self) -> None:
            self._send("application/json", b"")

        def _read_request(self) -> dict[str, Any]:
            if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                raw = b"".join(parts)
            else:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parsed: dict[str, Any] = json.loads(raw or b"{}")
            return parsed

        def _send(self, media_type: str, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_words: Any) -> None:
            pass

    return Handler
