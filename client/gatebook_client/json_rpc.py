"""Lines of JSON-RPC, as the stdio transport of the Model Context Protocol has them."""

import json
import sys
import threading
from typing import Any, BinaryIO

from gatebook_client.types import Json

PARSE_ERROR, INVALID_REQUEST, METHOD_MISSING, INVALID_PARAMS = -32700, -32600, -32601, -32602

MESSAGE_NAMES = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
CALL_NAMES = frozenset({"name", "arguments", "task", "_meta"})


class Unreadable(ValueError):
    """A line is not JSON, or two readers could understand it in two ways."""


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> Json:
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        raise Unreadable("a name stands twice in one object")
    return parsed


def parse_line(line: bytes) -> Any:
    """Return the JSON of a line. Raises Unreadable.

    A name that stands twice is refused: what is checked must be what the other side reads.
    """
    try:
        return json.loads(line.decode("utf-8"), object_pairs_hook=_refuse_duplicates)
    except Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def check_names(message: Any) -> None:
    """Raise Unreadable if another reader could see another call in a message.

    Some servers read names without regard to case.
    """
    for part in message if isinstance(message, list) else [message]:
        if isinstance(part, dict):
            _check_spelling(part, MESSAGE_NAMES)
            parameters = part.get("params")
            if isinstance(parameters, dict) and part.get("method") == "tools/call":
                _check_spelling(parameters, CALL_NAMES)


def _check_spelling(named: Json, names: frozenset[str]) -> None:
    for name in named:
        if name not in names and name.casefold() in names:
            raise Unreadable(f"the name {name!r} is not in small letters")


def request_key(identity: object) -> str:
    """Return an id of a request as text: 1 and "1" are two ids."""
    return json.dumps(identity)


def is_response(message: object) -> bool:
    """Return whether a message answers a request."""
    return (
        isinstance(message, dict)
        and "method" not in message
        and "id" in message
        and ("result" in message or "error" in message)
    )


def make_error(identity: object, code: int, sentence: str) -> Json:
    """Return the response that reports an error of the protocol."""
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": sentence}}


def make_text_result(
    identity: object, text: str, *, is_error: bool = False, is_typed: bool = False
) -> Json:
    """Return the response of a tool that answers with text.

    `is_typed` names the type of the result, as the protocol since 2026-07-28 requires.
    """
    result: Json = {"content": [{"type": "text", "text": text}]}
    if is_typed:
        result["resultType"] = "complete"
    if is_error:
        result["isError"] = True
    return {"jsonrpc": "2.0", "id": identity, "result": result}


def has_typed_results(meta: object) -> bool:
    """Return whether a request is of the protocol since 2026-07-28, by its `_meta`."""
    return isinstance(meta, dict) and "io.modelcontextprotocol/protocolVersion" in meta


class LineWriter:
    """Writes whole lines to a stream; safe for threads."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = sys.stdout.buffer if stream is None else stream
        self._lock = threading.Lock()

    def write(self, line: bytes) -> None:
        """Write one line. Raises OSError when the reader is gone."""
        with self._lock:
            self._stream.write(line if line.endswith(b"\n") else line + b"\n")
            self._stream.flush()

    def write_json(self, message: Json) -> None:
        """Write one message."""
        self.write(json.dumps(message, separators=(",", ":")).encode())
